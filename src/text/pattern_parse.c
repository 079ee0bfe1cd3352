/*
 * Reading a pattern: Oniguruma's syntax into a tree, by recursive descent. Each function reads one
 * rule of the grammar and gives the index of its node:
 *
 *   alternatives   branch | branch | ...
 *   one_branch     atom with quantifiers, one after the other
 *   quantifiers    ? * + {n,m} behind an atom
 *   atom           a character, an escape, a class, a place, or a group around alternatives
 *
 * Groups that only hold together leave no trace in the tree, capturing groups included: nobody asks
 * what they captured. Options such as (?i) are applied to each character as it is read, so the tree
 * knows nothing of them. A construct that is not understood is refused, and so is one that could
 * mean two things, for a guess would give other ids.
 */
#include "pattern_tree.h"

#include "utf8.h"

enum { IGNORE_CASE = 1, DOT_ALL = 2 };

/* ------------------------------------------------------------------------------- nodes */

/* A node that matches one character of a set. The set moves into the tree. */
static int32_t set_node(struct sb_reader *reader, struct sb_charset *set, uint32_t *index)
{
    int32_t rc = SPECBATCH_OK;
    uint32_t which = 0;

    SB_TRY(sb_tree_set(reader, set, &which));
    SB_TRY(sb_tree_node(reader, SB_NODE_SET, index));
    reader->tree->nodes[*index].set = which;
    sb_tree_measure(reader->tree, *index);
done:
    return rc;
}

/* ------------------------------------------------------------------------------- atoms */

static int32_t alternatives(struct sb_reader *reader, int options, uint32_t *index);

/* A node that matches one character of a range, or one that is not in the range. */
static int32_t range_node(struct sb_reader *reader, uint32_t first, uint32_t last, int negated,
                          uint32_t *index)
{
    struct sb_charset set = {.mem = reader->tree->mem};
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_charset_add(&set, first, last));
    if (negated)
        SB_TRY(sb_charset_negate(&set));
    SB_TRY(set_node(reader, &set, index));
done:
    sb_charset_clear(&set);
    return rc;
}

/* Whether a character beyond ASCII may fold to others, alone or together with its neighbours, or
 * others to it. */
static int32_t may_fold(struct sb_reader *reader, uint32_t cp, int *found)
{
    static const char *const folding[] = {"Cased", "M", "Lm"};
    const struct sb_charset *set;
    int32_t rc = SPECBATCH_OK;

    *found = 0;
    for (size_t i = 0; cp >= 0x80 && i < sizeof folding / sizeof *folding; i++) {
        SB_TRY(sb_property_find(&set, reader->properties, folding[i], strlen(folding[i])));
        *found |= sb_charset_has(set, cp);
    }
done:
    return rc;
}

/* A character without regard to case. */
static int32_t folded_node(struct sb_reader *reader, size_t at, uint32_t cp, uint32_t *index)
{
    struct sb_charset set = {.mem = reader->tree->mem};
    char letter = cp < 0x80 ? (char)cp : '\0';
    int32_t rc = SPECBATCH_OK;
    int found;

    letter = letter >= 'A' && letter <= 'Z' ? (char)(letter | 32) : letter;
    SB_TRY(may_fold(reader, cp, &found));
    if (found)
        SB_TRY(sb_pattern_refuse(reader, at, "(?i) on letters beyond ASCII"));
    SB_TRY(sb_charset_add(&set, cp, cp));
    SB_TRY(sb_class_fold(reader, at, &set));
    SB_TRY(set_node(reader, &set, index));
    reader->tree->nodes[*index].begins = reader->tree->nodes[*index].ends = letter;
done:
    sb_charset_clear(&set);
    return rc;
}

static int32_t char_node(struct sb_reader *reader, int options, size_t at, uint32_t cp,
                         uint32_t *index)
{
    return options & IGNORE_CASE ? folded_node(reader, at, cp, index)
                                 : range_node(reader, cp, cp, 0, index);
}

static int32_t place_node(struct sb_reader *reader, int place, uint32_t *index)
{
    struct sb_charset set = {.mem = reader->tree->mem};
    const struct sb_charset *word = NULL;
    int32_t rc = SPECBATCH_OK;
    uint32_t which = 0;

    if (place == SB_PLACE_WORD_EDGE || place == SB_PLACE_NO_WORD_EDGE)
        SB_TRY(sb_property_word(&word, reader->properties));
    if (word)
        SB_TRY(sb_charset_add_set(&set, word));
    else
        SB_TRY(sb_charset_add(&set, '\n', '\n'));
    SB_TRY(sb_tree_set(reader, &set, &which));
    SB_TRY(sb_tree_node(reader, SB_NODE_PLACE, index));
    reader->tree->nodes[*index].flag = place;
    reader->tree->nodes[*index].set = which;
done:
    sb_charset_clear(&set);
    return rc;
}

/* \R is short for another pattern. */
static int32_t line_break(struct sb_reader *reader, uint32_t *index)
{
    static const char pattern[] = "(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])";
    struct sb_reader inner = {.text = pattern,
                              .where = reader->where,
                              .n = sizeof pattern - 1,
                              .tree = reader->tree,
                              .properties = reader->properties};

    return alternatives(&inner, 0, index);
}

/* Reads what stands behind a backslash, outside of a class. */
static int32_t escape(struct sb_reader *reader, int options, uint32_t *index)
{
    /* In the order of SB_PLACE_*. The dots are for ^ and $, which have no backslash. */
    static const char places[] = "AzZ..bB";
    struct sb_charset set = {.mem = reader->tree->mem};
    size_t at = reader->at - 1;
    char c = sb_reader_peek(reader);
    const char *place = c && c != '.' ? strchr(places, c) : NULL;
    int32_t rc = SPECBATCH_OK;
    uint32_t cp = 0;
    int is_set = 0;

    SB_TRY(sb_class_escape(reader, &set, 0, &is_set));
    if (is_set) {
        SB_TRY(set_node(reader, &set, index));
    } else if (place) {
        reader->at++;
        SB_TRY(place_node(reader, (int)(place - places), index));
    } else if (sb_reader_skip(reader, "R")) {
        SB_TRY(line_break(reader, index));
    } else if (sb_reader_skip(reader, "N")) {
        SB_TRY(range_node(reader, '\n', '\n', 1, index));
    } else if (sb_reader_skip(reader, "O")) {
        SB_TRY(range_node(reader, 0, SB_CHAR_LAST, 0, index));
    } else {
        SB_TRY(sb_class_escaped_char(reader, 0, &cp));
        SB_TRY(char_node(reader, options, at, cp, index));
    }
done:
    sb_charset_clear(&set);
    return rc;
}

static int32_t brackets(struct sb_reader *reader, int options, uint32_t *index)
{
    struct sb_charset set = {.mem = reader->tree->mem};
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_class_brackets(reader, &set, options & IGNORE_CASE));
    SB_TRY(set_node(reader, &set, index));
done:
    sb_charset_clear(&set);
    return rc;
}

/* ------------------------------------------------------------------------------ groups */

/* Reads the inside of a group, which began at byte `at`, to its closing parenthesis. */
static int32_t inside(struct sb_reader *reader, size_t at, int options, uint32_t *index)
{
    int32_t rc = SPECBATCH_OK;

    if (++reader->depth > SB_PATTERN_DEPTH)
        SB_TRY(sb_pattern_refuse(reader, at, "groups nested so deep"));
    SB_TRY(alternatives(reader, options, index));
    if (!sb_reader_skip(reader, ")"))
        SB_TRY(sb_pattern_refuse(reader, at, "a group without its )"));
    reader->depth--;
done:
    return rc;
}

/* Reads a group that sets options, from behind its "(?". (?i:...) is a group of its own. Options
 * without a colon, as in (?i) and (?m-i), hold to the end of the group in which they stand, and all
 * that follows there is a group of its own too, alternatives included: a(?i)b|c is a(?i:b|c). */
static int32_t option_group(struct sb_reader *reader, size_t at, int options, uint32_t *index)
{
    int off = 0;
    int32_t rc = SPECBATCH_OK;

    for (; sb_reader_peek(reader) != ')' && sb_reader_peek(reader) != ':'; reader->at++) {
        char c = sb_reader_peek(reader);
        if (c == '-' && !off) {
            off = 1;
            continue;
        }
        const int option = c == 'i' ? IGNORE_CASE : c == 'm' ? DOT_ALL : 0;
        if (!option)
            return sb_pattern_refuse(reader, at, "this kind of group or option");
        options = off ? options & ~option : options | option;
    }
    if (sb_reader_skip(reader, ":"))
        return inside(reader, at, options, index);
    reader->at++;
    if (++reader->depth > SB_PATTERN_DEPTH)
        return sb_pattern_refuse(reader, at, "groups nested so deep");
    SB_TRY(alternatives(reader, options, index));
    reader->depth--;
done:
    return rc;
}

/* Reads a group of any kind, from behind its opening parenthesis. */
static int32_t group(struct sb_reader *reader, int options, uint32_t *index)
{
    static const struct {
        const char *begin;
        enum sb_node_kind kind;
        int flag;
    } kinds[] = {
        {"?:", SB_NODE_EMPTY, 0},
        {"?=", SB_NODE_LOOK, 0},
        {"?!", SB_NODE_LOOK, SB_LOOK_NOT},
        {"?>", SB_NODE_ATOMIC, 0},
        {"?<=", SB_NODE_LOOK, SB_LOOK_BEHIND},
        {"?<!", SB_NODE_LOOK, SB_LOOK_BEHIND | SB_LOOK_NOT},
    };
    size_t at = reader->at - 1, i;
    int32_t rc = SPECBATCH_OK;

    if (sb_reader_peek(reader) == '*')
        return sb_pattern_refuse(reader, at, "(*");
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!sb_reader_skip(reader, kinds[i].begin))
            continue;
        SB_TRY(inside(reader, at, options, index));
        if (kinds[i].kind != SB_NODE_EMPTY)
            SB_TRY(sb_tree_wrap(reader, kinds[i].kind, kinds[i].flag, index));
        if (kinds[i].flag & SB_LOOK_BEHIND &&
            reader->tree->nodes[reader->tree->nodes[*index].child].most > 255)
            SB_TRY(sb_pattern_refuse(reader, at, "a lookbehind of more than 255 characters"));
        return SPECBATCH_OK;
    }
    if (sb_reader_skip(reader, "?"))
        SB_TRY(option_group(reader, at, options, index));
    else
        SB_TRY(inside(reader, at, options, index));
    /* branch_add looks for letters that meet under (?i). In the reference too, those in a capturing
     * group or in one with options do not meet the letters around it. */
    reader->tree->nodes[*index].begins = reader->tree->nodes[*index].ends = '\0';
done:
    return rc;
}

/* -------------------------------------------------------------------------- repetition */

/* Reads a number of times into *value, which stays as it is when there are no digits. 0: the number
 * is too large. */
static int number(struct sb_reader *reader, int32_t *value)
{
    int32_t sum = 0;
    char c = sb_reader_peek(reader);

    if (c < '0' || c > '9')
        return 1;
    for (; c >= '0' && c <= '9'; c = (++reader->at, sb_reader_peek(reader)))
        if ((sum = sum * 10 + (c - '0')) > SB_PATTERN_REPEAT)
            return 0;
    *value = sum;
    return 1;
}

/* Reads {n}, {n,}, {,m} or {n,m} from behind the brace. *fixed: it is {n}. A brace that begins
 * something else is literal text to Oniguruma, and n > m makes the interval possessive there; both
 * are refused. */
static int32_t interval(struct sb_reader *reader, size_t at, int32_t *min, int32_t *max, int *fixed)
{
    *min = -1;
    *max = -1;
    int ok = number(reader, min);
    *fixed = !sb_reader_skip(reader, ",");
    if (!*fixed) {
        ok = ok && number(reader, max) && (*min >= 0 || *max >= 0);
        *max = *max < 0 ? SB_PATTERN_ENDLESS : *max;
        *min = *min < 0 ? 0 : *min;
    } else {
        *max = *min;
    }
    if (!ok || *min < 0 || *min > *max || !sb_reader_skip(reader, "}"))
        return sb_pattern_refuse(reader, at, "{ that begins no interval {n,m}");
    return SPECBATCH_OK;
}

/* Whether a node is an atom with {1}. Oniguruma drops such an interval, and what stands behind it
 * then belongs to the last character alone: (?:ab){1}{2} is abb there. */
static int once(const struct sb_node *node)
{
    return node->kind == SB_NODE_REPEAT && node->min == 1 && node->max == 1;
}

/* Reads one quantifier behind an atom, if one is there, and wraps the atom in it. The + of {n,m}+
 * does not make it possessive: it is a second quantifier. So is the ? of {n}?, which means {n} or
 * nothing. */
static int32_t quantifier(struct sb_reader *reader, uint32_t *index, int *found)
{
    size_t at = reader->at;
    struct sb_node *child = &reader->tree->nodes[*index];
    int is_interval = sb_reader_peek(reader) == '{', fixed = 0, mode = SB_GREEDY;
    int32_t min = 0, max = SB_PATTERN_ENDLESS, rc = SPECBATCH_OK;

    *found = 1;
    if (sb_reader_skip(reader, "{"))
        SB_TRY(interval(reader, at, &min, &max, &fixed));
    else if (sb_reader_skip(reader, "?"))
        max = 1;
    else if (sb_reader_skip(reader, "+"))
        min = 1;
    else if (!sb_reader_skip(reader, "*"))
        *found = 0;
    if (!*found)
        return SPECBATCH_OK;
    if (!fixed && sb_reader_skip(reader, "?"))
        mode = SB_LAZY;
    else if (!is_interval && sb_reader_skip(reader, "+"))
        mode = SB_POSSESSIVE;
    if (child->kind == SB_NODE_LOOK || child->kind == SB_NODE_PLACE)
        SB_TRY(sb_pattern_refuse(reader, at, "the repetition of a place"));
    if (child->least == 0 && max > 1)
        SB_TRY(sb_pattern_refuse(reader, at, "the repetition of what can match nothing"));
    SB_TRY(sb_tree_wrap(reader, SB_NODE_REPEAT, mode, index));
    child = &reader->tree->nodes[*index];
    child->min = min;
    child->max = max;
    if (once(child)) {
        child->begins = reader->tree->nodes[child->child].begins;
        child->ends = reader->tree->nodes[child->child].ends;
    }
    sb_tree_measure(reader->tree, *index);
done:
    return rc;
}

/* Reads all that stands behind an atom: a quantifier, and a second one if the first is an interval,
 * as in {n,m}+ and {n}?. With no more than two of these nodes around an atom, and a limit to groups
 * in groups, the tree's depth is bounded, and so is the recursion of whatever walks through it. */
static int32_t quantifiers(struct sb_reader *reader, uint32_t *index)
{
    int is_interval = sb_reader_peek(reader) == '{', found = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(quantifier(reader, index, &found));
    size_t at = reader->at;
    if (found && is_interval && !once(&reader->tree->nodes[*index]))
        SB_TRY(quantifier(reader, index, &found));
    else if (found && is_interval && sb_among(sb_reader_peek(reader), "?*+{"))
        SB_TRY(sb_pattern_refuse(reader, at, "a quantifier behind {1}"));
    at = reader->at;
    if (found && sb_among(sb_reader_peek(reader), "?*+{"))
        SB_TRY(sb_pattern_refuse(reader, at, "a quantifier behind a quantifier"));
done:
    return rc;
}

/* ------------------------------------------------------------------------------ syntax */

/* Steps over a comment, from behind its "(?#". */
static int32_t comment(struct sb_reader *reader)
{
    size_t at = reader->at - 3;

    for (; reader->at < reader->n; reader->at++) {
        if (reader->text[reader->at] == '\\')
            reader->at++;
        else if (reader->text[reader->at] == ')')
            return reader->at++, SPECBATCH_OK;
    }
    return sb_pattern_refuse(reader, at, "a comment without its )");
}

static int32_t atom(struct sb_reader *reader, int options, uint32_t *index)
{
    size_t at = reader->at;
    char c = reader->text[at];

    if (sb_among(c, "?*+{"))
        return sb_pattern_refuse(reader, at,
                                 c == '{' ? "{ that begins no interval {n,m}"
                                          : "a quantifier without anything before it");
    reader->at++;
    switch (c) {
    case '\\':
        return escape(reader, options, index);
    case '[':
        return brackets(reader, options, index);
    case '(':
        return group(reader, options, index);
    case '^':
        return place_node(reader, SB_PLACE_LINE_BEGIN, index);
    case '$':
        return place_node(reader, SB_PLACE_LINE_END, index);
    case '.':
        return options & DOT_ALL ? range_node(reader, 0, SB_CHAR_LAST, 0, index)
                                 : range_node(reader, '\n', '\n', 1, index);
    default:
        reader->at = at;
        return char_node(reader, options, at, sb_reader_char(reader), index);
    }
}

/* Appends a node to a list of nodes. */
static void append(struct sb_tree *tree, uint32_t *first, uint32_t *last, uint32_t node)
{
    if (*last)
        tree->nodes[*last].next = node;
    else
        *first = node;
    *last = node;
}

/* Makes one node of a list: its only node, or a node of `kind` around all, or an empty one. */
static int32_t join(struct sb_reader *reader, enum sb_node_kind kind, uint32_t first, uint32_t last,
                    uint32_t *index)
{
    *index = first;
    if (first && first == last)
        return SPECBATCH_OK;
    return sb_tree_wrap(reader, first ? kind : SB_NODE_EMPTY, 0, index);
}

/* Whether a single character is these two letters in another case, as U+FB01 is "fi". */
static int folds_together(char a, char b)
{
    return (a == 's' && (b == 's' || b == 't')) || (a == 'f' && (b == 'f' || b == 'i' || b == 'l'));
}

/* A list of nodes, and the letters under (?i) that it begins and ends with (see sb_node). */
struct branch {
    uint32_t first, last;
    char begins, ends;
    int begun; /* some node of it can match something, or holds at certain places only */
};

/* Whether a node has no instructions: it is empty, or repeated no times, or repeats such a node. */
static int is_silent(const struct sb_tree *tree, const struct sb_node *node)
{
    while (node->kind == SB_NODE_REPEAT && node->max > 0 && node->min == node->max)
        node = &tree->nodes[node->child];
    return node->kind == SB_NODE_EMPTY || (node->kind == SB_NODE_REPEAT && node->max == 0);
}

/* Appends a node. Two letters that meet under (?i), in (?:) groups or not, may be a single
 * character of the text (folds_together), which is refused. A node that only matches nothing,
 * anywhere, does not keep them apart, and is left out: a repetition writes its body out as often as
 * it says, and what leaves no instruction is not counted by their limit. */
static int32_t branch_add(struct sb_reader *reader, struct branch *branch, size_t at,
                          uint32_t index)
{
    const struct sb_node *node = &reader->tree->nodes[index];
    int32_t rc = SPECBATCH_OK;

    if (node->most > 0 || node->kind == SB_NODE_PLACE || node->kind == SB_NODE_LOOK) {
        if (folds_together(branch->ends, node->begins))
            SB_TRY(sb_pattern_refuse(reader, at,
                                     "(?i) on letters that are one character in other cases"));
        branch->begins = branch->begun ? branch->begins : node->begins;
        branch->ends = node->ends;
        branch->begun = 1;
    }
    if (!is_silent(reader->tree, node))
        append(reader->tree, &branch->first, &branch->last, index);
done:
    return rc;
}

/* Reads up to the next | or ), or to the end. */
static int32_t one_branch(struct sb_reader *reader, int options, uint32_t *index)
{
    struct branch branch = {.first = 0};
    int32_t rc = SPECBATCH_OK;

    while (reader->at < reader->n && !sb_among(reader->text[reader->at], "|)")) {
        if (sb_reader_skip(reader, "(?#")) {
            SB_TRY(comment(reader));
            continue;
        }
        uint32_t node = 0;
        const size_t at = reader->at;
        SB_TRY(atom(reader, options, &node));
        SB_TRY(quantifiers(reader, &node));
        SB_TRY(branch_add(reader, &branch, at, node));
    }
    SB_TRY(join(reader, SB_NODE_ALL, branch.first, branch.last, index));
    reader->tree->nodes[*index].begins = branch.begins;
    reader->tree->nodes[*index].ends = branch.ends;
done:
    return rc;
}

static int32_t alternatives(struct sb_reader *reader, int options, uint32_t *index)
{
    uint32_t first = 0, last = 0, node = 0;
    int32_t rc = SPECBATCH_OK;

    do {
        SB_TRY(one_branch(reader, options, &node));
        append(reader->tree, &first, &last, node);
    } while (sb_reader_skip(reader, "|"));
    SB_TRY(join(reader, SB_NODE_ANY, first, last, index));
done:
    return rc;
}

/* Reads the whole pattern. */
static int32_t parse(struct sb_reader *reader, uint32_t *root)
{
    int32_t rc = SPECBATCH_OK;

    if (reader->n > SB_PATTERN_BYTES)
        SB_TRY(sb_pattern_refuse(reader, SB_PATTERN_BYTES, "a pattern of so many bytes"));
    if (sb_utf8_valid(reader->text, reader->n) < reader->n)
        SB_TRY(sb_pattern_refuse(reader, sb_utf8_valid(reader->text, reader->n), "invalid UTF-8"));
    SB_TRY(alternatives(reader, 0, root));
    if (reader->at < reader->n)
        SB_TRY(sb_pattern_refuse(reader, reader->at, "a ) without its group"));
done:
    return rc;
}

int32_t sb_pattern_create(struct sb_pattern **out, struct sb_properties *properties,
                          const char *text, size_t n, const char *where)
{
    struct sb_tree tree = {.mem = properties->mem};
    struct sb_reader reader = {
        .text = text, .where = where, .n = n, .tree = &tree, .properties = properties};
    uint32_t root = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(parse(&reader, &root));
    SB_TRY(sb_pattern_compile(out, &reader, root));
done:
    sb_tree_clear(&tree);
    return rc;
}
