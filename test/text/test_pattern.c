/*
 * Regular expressions of tokenizers. The words of every construct are compared with those of the
 * reference implementation (test/data/tokenizers/pattern.jsonl, which compare_tokenizers.py
 * --golden wrote), and those of the hand-written patterns with the same patterns compiled. Refusals
 * have to name the construct and its place. Patterns that mean harm have to end soon.
 */
#include <time.h>

#include "text/pipeline.h"
#include "support/tokenizer_data.h"

/* ------------------------------------------------------------------------- splitting */

/* Where the words of a text end, in bytes. */
struct words {
    size_t n, ends[4096], at;
};

static int32_t note_word(void *context, const char *word, size_t n)
{
    struct words *words = context;

    (void)word;
    words->at += n;
    if (words->n < sizeof words->ends / sizeof *words->ends)
        words->ends[words->n++] = words->at;
    return SPECBATCH_OK;
}

static int32_t split(const struct sb_steps *steps, const char *text, size_t n, struct words *words)
{
    struct sb_work work;

    words->n = words->at = 0;
    sb_work_init(&work, &test_mem);
    const int32_t rc = sb_split(steps, 0, &work, text, n, 1, note_word, words);
    sb_work_clear(&work);
    return rc;
}

/* Makes a list of one step, that of a pattern. */
static int32_t compile(struct sb_steps *steps, const char *pattern, size_t n)
{
    struct sb_properties properties = {.mem = &test_mem};

    sb_steps_clear(steps);
    memset(steps, 0, sizeof *steps);
    steps->n = 1;
    const int32_t rc = sb_split_compile(&steps->at[0], &properties, pattern, n, "file");
    sb_properties_clear(&properties);
    return rc;
}

/* ---------------------------------------------------------------------------- golden */

static int as_expected(const struct words *words, const struct sb_json_node *list)
{
    const struct sb_json_node *node = sb_json_first(list);
    size_t i, n = 0, at = 0;

    for (i = 0; i < words->n && node; i++, node = sb_json_next(node), at += n)
        if (!sb_json_string(node, &n) || words->ends[i] != at + n)
            return 0;
    return i == words->n && !node;
}

/* A line {"pattern"} or {"refused"} changes the step, a line {"text", "words"} tries it. */
static int golden_line(struct sb_steps *steps, const struct sb_json_node *root)
{
    static struct words words;
    const char *s;
    size_t n = 0;

    if ((s = sb_json_string(sb_json_get(root, "pattern"), &n)) != NULL)
        return compile(steps, s, n) == SPECBATCH_OK;
    if ((s = sb_json_string(sb_json_get(root, "refused"), &n)) != NULL)
        return compile(steps, s, n) == SPECBATCH_E_UNSUPPORTED;
    s = sb_json_string(sb_json_get(root, "text"), &n);
    return split(steps, s, n, &words) == SPECBATCH_OK &&
           as_expected(&words, sb_json_get(root, "words"));
}

static void test_reference_words(void)
{
    struct sb_steps steps = {.n = 0};
    struct lines lines;
    char *line;
    int seen = 0;

    CHECK(open_lines(&lines, "test/data/tokenizers/pattern.jsonl"));
    for (; (line = next_line(&lines)) != NULL; seen++) {
        struct sb_json *doc = NULL;
        CHECK_OK(sb_json_parse(&doc, &test_mem, line, strlen(line), "pattern.jsonl"));
        if (!golden_line(&steps, sb_json_root(doc)))
            FAIL("pattern.jsonl:%d: %s (%s)", seen + 1, line, specbatch_last_error());
        sb_json_free(doc);
    }
    CHECK(seen > 1500);
    close_lines(&lines);
    sb_steps_clear(&steps);
}

/* ---------------------------------------------------------------------------- refused */

/* A construct that is not understood is refused, by its name and place. */
static void test_refusals_name_the_place(void)
{
    static const struct {
        const char *pattern, *message;
    } cases[] = {
        {"\\C", "byte 0: \\C is not supported"},
        {"a\\Kb", "byte 1: \\K is"},
        {"\\G", "byte 0: \\G"},
        {"ab\\X", "byte 2: \\X"},
        {"(*NO_JIT)a", "byte 0: (* is"},
        {"a(*FAIL)", "byte 1: (* is"},
        {"(a)\\1", "byte 3: \\1"},
        {"\\g<0>", "byte 0: \\g"},
        {"(?<name>a)", "byte 0: this kind of group"},
        {"x(?~a)", "byte 1: this kind of group"},
        {"(?(a)b)", "byte 0: this kind of group"},
        {"(?x)a", "byte 0: this kind of group or option"},
        {"[a-z", "byte 0: a class without its ]"},
        {"[]]", "byte 0: a class that begins with ]"},
        {"a[\\w-z]", "byte 4: a range of something else"},
        {"[z-a]", "byte 2: a range whose end"},
        {"[[:letter:]]", "byte 1: [: in a class"},
        {"a\\p{Klingon}", "byte 1: the property Klingon"},
        {"\\pL", "byte 0: \\p without a brace"},
        {"\\p{L", "byte 0: \\p{ without }"},
        {"\\p{Word}", "byte 0: \\p{Word}"},
        {"(a", "byte 0: a group without its )"},
        {"a)", "byte 1: a ) without its group"},
        {"+a", "byte 0: a quantifier without"},
        {"a{2", "byte 1: { that begins no interval"},
        {"a{3,2}", "byte 1: { that begins no interval"},
        {"a+*", "byte 2: a quantifier behind a quantifier"},
        {"(?:ab){1}{2}", "byte 9: a quantifier behind {1}"},
        {"(?:ab){1,1}{2}", "byte 11: a quantifier behind {1}"},
        {"a{1,1}?{2}", "byte 7: a quantifier behind {1}"},
        {"a{1}+", "byte 4: a quantifier behind {1}"},
        {"a{1}*", "byte 4: a quantifier behind {1}"},
        {"a{1}?", "byte 4: a quantifier behind {1}"},
        {"a{2}{2}{2}", "byte 7: a quantifier behind a quantifier"},
        {"a{2}{1}+", "byte 7: a quantifier behind a quantifier"},
        {"(?:a*)+", "byte 6: the repetition of what can match nothing"},
        {"(?=a)+", "byte 5: the repetition of a place"},
        {"(?<=a+)b", "byte 0: a lookbehind of more than 255"},
        {"(?i:\xC3\xA9)", "byte 4: (?i) on letters beyond ASCII"},
        {"(?i)[\\p{L}]", "byte 4: (?i) on letters beyond ASCII"},
        {"(?i:off)", "byte 6: (?i) on letters that are one character"},
        {"(?i)s(?:s)", "byte 5: (?i) on letters that are one character"},
        {"(?i)(?:s)(?:T)", "byte 9: (?i) on letters that"},
        {"(?i)(?:s)s", "byte 9: (?i) on letters that"},
        {"(?i:s(?:s))", "byte 5: (?i) on letters that"},
        {"(?i)s(?#c)s", "byte 10: (?i) on letters that"},
        {"(?i)s(?:)s", "byte 9: (?i) on letters that"},
        {"(?i)(?:xs)(?:sx)", "byte 10: (?i) on letters that"},
        {"(?i)(?:f{1}){1}(?:(?:L)x)", "byte 15: (?i) on letters that"},
        {"(?i)f{1,1}?\\x69", "byte 11: (?i) on letters that"},
        {"\\xC3", "byte 0: a number that is not a character"},
        {"\\u{41}", "byte 0: a number that is not a character"},
        {"a\\", "byte 1: a backslash at the end"},
        {"a\xFF", "byte 1: invalid UTF-8"},
        {"(?:(?:a{1,1000}b){1,1000}c){1,1000}", "so many repetitions"},
    };
    /* Letters that are not refused, as the reference does not take them together either. */
    static const char *const apart[] = {"(?i)(s)s",   "(?i)s(s)",    "(?i)s(?>s)", "(?i)s(?:s|x)",
                                        "(?i)s{2}",   "(?i)s+s",     "(?i)[s]s",   "s(?i)s",
                                        "(?i)s\\bs",  "(?i)s(?-i)s", "(?i)sx|s",   "(?i)sf",
                                        "(?i)s(?i)s", "(?i:s)(?i:s)"};
    struct sb_steps steps = {.n = 0};
    size_t i;

    for (i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_ERROR(compile(&steps, cases[i].pattern, strlen(cases[i].pattern)),
                    SPECBATCH_E_UNSUPPORTED, cases[i].message);
    for (i = 0; i < sizeof apart / sizeof *apart; i++)
        CHECK_OK(compile(&steps, apart[i], strlen(apart[i])));
    CHECK_OK(compile(&steps, "a", 1));
    sb_steps_clear(&steps);
}

static char *repeated(const char *piece, size_t count, const char *tail)
{
    size_t n = strlen(piece);
    char *text = malloc(n * count + strlen(tail) + 1);

    for (size_t i = 0; i < count; i++)
        memcpy(text + i * n, piece, n);
    strcpy(text + n * count, tail);
    return text;
}

/* A pattern ends where its length says. What is in memory behind it, here a ], is not part of it.
 */
static void test_nothing_is_read_behind_the_end(void)
{
    static const char pattern[] = "[\0-x]";
    struct sb_steps steps = {.n = 0};

    CHECK_ERROR(compile(&steps, pattern, 3), SPECBATCH_E_UNSUPPORTED,
                "byte 0: a class without its ]");
}

/* A second interval repeats the first one, as in the reference. */
static void test_two_intervals(void)
{
    static const char text[] = "ababababx abb";
    static const struct {
        const char *pattern;
        size_t n, ends[4];
    } cases[] = {
        {"(?:ab){2}{2}", 2, {8, 13}},   {"(?:ab){2}{1}", 3, {4, 8, 13}}, {"(?:ab){2}+", 2, {8, 13}},
        {"(?:ab){1,2}{2}", 2, {8, 13}}, {"(?:ab){2}{1,2}", 2, {8, 13}},
    };
    static struct words words;
    struct sb_steps steps = {.n = 0};
    size_t i;

    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(compile(&steps, cases[i].pattern, strlen(cases[i].pattern)));
        CHECK_OK(split(&steps, text, sizeof text - 1, &words));
        if (words.n != cases[i].n ||
            memcmp(words.ends, cases[i].ends, words.n * sizeof words.ends[0]) != 0)
            FAIL("%s", cases[i].pattern);
    }
    sb_steps_clear(&steps);
}

/* Depth, sizes and numbers are bounded. Otherwise a file could choose how much stack and time it
 * takes to open it. */
static void test_patterns_too_big(void)
{
    static const struct {
        const char *piece;
        size_t count;
        const char *tail, *message;
    } cases[] = {
        {"(", 8000, "", "groups nested so deep"},
        {"(?i)", 2000, "a", "groups nested so deep"},
        {"[", 8000, "", "classes nested so deep"},
        {"a", 8193, "", "byte 8192: a pattern of so many bytes"},
        {"(?:", 60, "a", "a group without its )"},
    };
    static const char *const silent[] = {"(?:)", "(?:){1}", "b{0}", "((){1}){1}"};
    struct sb_steps steps = {.n = 0};
    char wide[4096] = "";
    size_t i;

    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *pattern = repeated(cases[i].piece, cases[i].count, cases[i].tail);
        CHECK_ERROR(compile(&steps, pattern, strlen(pattern)), SPECBATCH_E_UNSUPPORTED,
                    cases[i].message);
        free(pattern);
    }
    /* What has no instructions is no work either, however often it is written out. */
    for (i = 0; i < sizeof silent / sizeof *silent; i++) {
        char *inside = repeated(silent[i], 800, "c){60000}"), pattern[8192];
        snprintf(pattern, sizeof pattern, "(?:%s", inside);
        free(inside);
        const clock_t begin = clock();
        CHECK_OK(compile(&steps, pattern, strlen(pattern)));
        CHECK((clock() - begin) / CLOCKS_PER_SEC < 2);
    }
    for (i = 0; i < 300; i++) /* 300 letters, each of a kind of its own */
        snprintf(wide + strlen(wide), sizeof wide - strlen(wide), "\\x{%x}",
                 (unsigned)(0x4E00 + i));
    CHECK_ERROR(compile(&steps, wide, strlen(wide)), SPECBATCH_E_UNSUPPORTED, "256 kinds");
    sb_steps_clear(&steps);
}

/* ---------------------------------------------------------------------------- by hand */

/* The patterns that split_words.c has by hand give the words that the matcher gives. In a group, a
 * pattern is not known, and goes to the matcher. */
static void test_by_hand_as_compiled(void)
{
#define CL100K(digits)                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
    static const char *const patterns[] = {
        CL100K(""), CL100K("{1,3}"),
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"};
    static const char *const pieces[] = {"a",
                                         "Z",
                                         "s",
                                         "t",
                                         "re",
                                         "LL",
                                         "'",
                                         "'s",
                                         "'D",
                                         "\xC5\xBF",
                                         "1",
                                         "23",
                                         " ",
                                         "  ",
                                         "\n",
                                         "\r\n",
                                         "\t",
                                         ".",
                                         "!?",
                                         "\xC3\xA9",
                                         "\xCC\x81",
                                         "\xE4\xBD\xA0",
                                         "\xC2\xA0",
                                         "\xE3\x80\x80",
                                         "\xE1\xA0\x8E",
                                         "\xC2\xBD",
                                         "\xF0\x9F\x98\x80",
                                         "\xE2\x85\xA7",
                                         "\xF0\xAE\xAF\xB0",
                                         "\xF0\x94\x86\x86",
                                         "\x01",
                                         "\xF4\x8F\xBF\xBF"};
    static struct words by_hand, compiled;
    struct sb_steps hand = {.n = 0}, machine = {.n = 0};
    uint32_t state = 1;
    char group[400], text[400];
    size_t p, i, k;

    for (p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        snprintf(group, sizeof group, "(?:%s)", patterns[p]);
        CHECK_OK(compile(&hand, patterns[p], strlen(patterns[p])));
        CHECK_OK(compile(&machine, group, strlen(group)));
        CHECK(hand.at[0].kind != SB_STEP_SPLIT_PATTERN &&
              machine.at[0].kind == SB_STEP_SPLIT_PATTERN);
        for (i = 0; i < 20000; i++) {
            text[0] = '\0';
            for (k = 0; k < 1 + i % 24; k++) {
                state = state * 1664525 + 1013904223;
                strcat(text, pieces[(state >> 16) % (sizeof pieces / sizeof *pieces)]);
            }
            CHECK_OK(split(&hand, text, strlen(text), &by_hand));
            CHECK_OK(split(&machine, text, strlen(text), &compiled));
            if (by_hand.n != compiled.n ||
                memcmp(by_hand.ends, compiled.ends, by_hand.n * sizeof *by_hand.ends) != 0)
                FAIL("pattern %zu on \"%s\"", p, text);
        }
    }
    sb_steps_clear(&hand);
    sb_steps_clear(&machine);
}

/* ------------------------------------------------------------------------------- harm */

/* Without a bound each of these takes from minutes to the age of the universe, or gigabytes. */
static void test_steps_are_bounded(void)
{
    static const struct {
        const char *pattern, *piece;
        size_t count;
        const char *tail;
    } cases[] = {
        {"(.)*?[bc]", "a", 100000, ""},
        {"(?:(a)|b)*[xc]", "ab", 100000, ""},
        {"(a+)+$b", "a", 64, "c"},
        {"(a|aa)+c", "a", 100, ""},
        {"a*b", "a", 100000, ""},
        {"a*+b", "a", 100000, ""},
        {"(?>a*)b", "a", 100000, ""},
        {"(?=a*b)a", "a", 100000, ""},
        {"(?<!a{0,200}b)c|x", "a", 100000, "c"},
        {"(?:a?){30}b", "a", 5000, ""}, /* refused on opening */
    };
    static struct words words;
    struct sb_steps steps = {.n = 0};
    size_t i;

    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = repeated(cases[i].piece, cases[i].count, cases[i].tail);
        int32_t rc = compile(&steps, cases[i].pattern, strlen(cases[i].pattern));
        if (rc == SPECBATCH_OK)
            rc = split(&steps, text, strlen(text), &words);
        if (i == 8)
            CHECK_OK(rc);
        else
            CHECK_ERROR(rc, SPECBATCH_E_UNSUPPORTED,
                        i == 9 ? "can match nothing" : "too many steps");
        /* The next call has its steps again. */
        CHECK_OK(i == 9 ? SPECBATCH_OK : split(&steps, "ac", 2, &words));
        free(text);
    }
    sb_steps_clear(&steps);
}

/* All patterns of a call share its steps, so two patterns have no more of them than one. */
static void test_steps_of_a_call(void)
{
    static struct words words;
    struct sb_steps steps = {.n = 0};
    struct sb_work work;
    char *text = repeated("a", 7000, "");
    uint64_t first;

    CHECK_OK(compile(&steps, "a*b", 3));
    sb_work_init(&work, &test_mem);
    CHECK_OK(sb_split(&steps, 0, &work, text, strlen(text), 1, note_word, &words));
    first = SB_MATCH_STEPS + 7000ull * SB_MATCH_STEPS_PER_BYTE - work.match.steps;
    CHECK(first > 7000ull * 7000 / 2);
    CHECK_ERROR(sb_split(&steps, 0, &work, text, strlen(text), 1, note_word, &words),
                SPECBATCH_E_UNSUPPORTED, "too many steps");
    CHECK_INT(work.match.steps, 0);
    sb_work_clear(&work);
    sb_steps_clear(&steps);
    free(text);
}

/* On a million bytes of the kind that is worst for them, the patterns of known models stay far
 * below the bound. */
static void test_real_patterns_are_cheap(void)
{
    static const char *const texts[] = {" ",
                                        "\n",
                                        " \n",
                                        "a",
                                        "A",
                                        "Aa",
                                        "1",
                                        "'s",
                                        "'",
                                        "!",
                                        "\xE4\xBD\xA0",
                                        "e\xCC\x81",
                                        "a1 .",
                                        "\xE0\xB8\x81",
                                        "\xF0\x9F\x98\x80"};
    static struct words words;
    struct lines lines;
    struct sb_steps steps = {.n = 0};
    char *line;
    size_t i, patterns = 0;

    CHECK(open_lines(&lines, "test/data/tokenizers/pattern.jsonl"));
    while (patterns < 15 && (line = next_line(&lines)) != NULL) { /* the models' come first */
        struct sb_json *doc = NULL;
        const char *s;
        size_t n = 0;
        CHECK_OK(sb_json_parse(&doc, &test_mem, line, strlen(line), "pattern.jsonl"));
        s = sb_json_string(sb_json_get(sb_json_root(doc), "pattern"), &n);
        if (s)
            CHECK_OK(compile(&steps, s, n));
        patterns += s != NULL;
        for (i = 0; s && i < sizeof texts / sizeof *texts; i++) {
            size_t bytes = strlen(texts[i]) * (100000 / strlen(texts[i]));
            char *text = repeated(texts[i], 100000 / strlen(texts[i]), "");
            struct sb_work work;
            sb_work_init(&work, &test_mem);
            CHECK_OK(sb_split(&steps, 0, &work, text, bytes, 1, note_word, &words));
            if (steps.at[0].kind == SB_STEP_SPLIT_PATTERN &&
                work.match.steps < SB_MATCH_STEPS + (SB_MATCH_STEPS_PER_BYTE - 20ull) * bytes)
                FAIL("pattern %zu takes over 20 steps a byte on \"%s\"", patterns, texts[i]);
            sb_work_clear(&work);
            free(text);
        }
        sb_json_free(doc);
    }
    close_lines(&lines);
    sb_steps_clear(&steps);
}

/* Any text is a pattern or is refused, and the words that it makes are whole characters. */
static void test_any_text_as_pattern(void)
{
    static const char *const pieces[] = {
        "a",         "b",         "(",        ")",      "(?:",
        "(?i)",      "(?i:",      "(?=",      "(?!",    "(?<=",
        "(?<!",      "(?>",       "(?#",      "(?m-i:", "|",
        "*",         "+",         "?",        "{",      "}",
        ",",         "1",         "2",        "{1,2}",  "[",
        "[^",        "]",         "-",        "&&",     "[:",
        ":]",        "[:alpha:]", "\\",       "\\p{L}", "s",
        "\\P{^Han}", "\\w",       "\\b",      "\\R",    "\\x{",
        "\\u0041",   "^",         "$",        ".",      "\\A",
        "\\z",       "\\Z",       "\xC3\xA9", " ",      "\xF0\x9F\x98\x80",
        "\n",        "\\C",       "\xC3",     "\\d"};
    static const char text[] = "a\xC3\xA9 ab\nbs1 \xF0\x9F\x98\x80\xE4\xBD\xA0S\r\n''s";
    static struct words words;
    struct sb_steps steps = {.n = 0};
    uint32_t state = 7;
    size_t i, k, accepted = 0;
    char pattern[200];

    for (i = 0; i < 20000; i++) {
        pattern[0] = '\0';
        for (k = 0; k < 1 + i % 12; k++) {
            state = state * 1664525 + 1013904223;
            strcat(pattern, pieces[(state >> 16) % (sizeof pieces / sizeof *pieces)]);
        }
        if (compile(&steps, pattern, strlen(pattern)) != SPECBATCH_OK)
            continue;
        accepted++;
        CHECK_OK(split(&steps, text, sizeof text - 1, &words));
        CHECK_INT(words.at, sizeof text - 1);
        for (k = 0; k < words.n; k++)
            if ((text[words.ends[k]] & 0xC0) == 0x80)
                FAIL("%s cuts a character in two", pattern);
    }
    CHECK(accepted > 500);
    sb_steps_clear(&steps);
}

/* For every n: when the n-th allocation fails, the call fails with E_NOMEM and keeps no memory. */
struct scarce {
    int left;
    int blocks;
};

static void *scarce_alloc(void *user, size_t size, size_t align)
{
    struct scarce *scarce = user;
    void *block = scarce->left-- > 0 ? aligned_alloc(align, (size + align - 1) / align * align)
                                     : NULL;

    scarce->blocks += block != NULL;
    return block;
}

static void scarce_free(void *user, void *block, size_t size)
{
    struct scarce *scarce = user;

    (void)size;
    scarce->blocks -= block != NULL;
    free(block);
}

/* The set of a property is read out of the Unicode tables once for all patterns of a file, however
 * often they name it. Reading it again for every \W made a file of 16 patterns take seconds. */
static void test_properties_are_computed_once(void)
{
    static const char piece[] = "\\W\\p{Greek}[\\w\\P{greek}](?i:[^k])\\b[[:^alpha:]]";
    struct sb_properties properties = {.mem = &test_mem};
    struct sb_step steps[16] = {{.kind = SB_STEP_SPLIT_TEXT}};
    char *pattern = repeated(piece, 8192 / (sizeof piece - 1), "");

    for (size_t i = 0; i < 16; i++) {
        CHECK_OK(sb_split_compile(&steps[i], &properties, pattern, strlen(pattern), "file"));
        CHECK_INT(properties.n_computed, 4); /* those of \W, of \p{Greek}, of [\w] and of alpha */
    }
    sb_pattern_free(steps[0].pattern);
    CHECK_OK(sb_split_compile(&steps[0], &properties, "(?i:[k\xE2\x84\xAA])", 11, "file"));
    CHECK_INT(properties.n_computed, 5); /* and Cased, which (?i) asks for beyond ASCII */
    sb_pattern_free(steps[0].pattern);
    steps[0].pattern = NULL;
    CHECK_ERROR(sb_split_compile(&steps[0], &properties, "\\p{Klingon}", 11, "file"),
                SPECBATCH_E_UNSUPPORTED, "the property Klingon");
    CHECK_INT(properties.n_computed, 5);
    for (size_t i = 0; i < 16; i++)
        sb_pattern_free(steps[i].pattern);
    sb_properties_clear(&properties);
    CHECK_INT(properties.n, 0);
    free(pattern);
}

static void test_no_memory(void)
{
    static const char
        pattern[] = "(?i:'s)|[^\\r\\n\\p{L}&&[^x]]?\\p{L}+|(?:ab|(?>c+)|(?<=d)e){1,3}?|\\b.$|\\R";
    static const char text[] = "it's abab cc\ndede (a) \xC3\xA9";
    struct scarce scarce = {0, 0};
    struct sb_mem mem = {scarce_alloc, scarce_free, &scarce};
    struct sb_pattern *p = NULL;
    struct sb_match match;
    struct sb_bytes kinds = {.mem = &mem};
    struct sb_properties properties = {.mem = &mem};
    size_t begin, end;
    int n, done = 0;

    for (n = 0; !done && n < 2000; n++) {
        int32_t rc;
        scarce.left = n;
        sb_match_init(&match, &mem);
        rc = sb_pattern_create(&p, &properties, pattern, sizeof pattern - 1, "file");
        if (rc == SPECBATCH_OK)
            rc = sb_match_begin(p, &match, text, sizeof text - 1, &kinds);
        if (rc == SPECBATCH_OK)
            rc = sb_match_next(p, &match, &kinds, 0, &begin, &end);
        done = rc == SPECBATCH_OK;
        if (!done)
            CHECK_INT(rc, SPECBATCH_E_NOMEM);
        sb_bytes_clear(&kinds);
        sb_match_clear(&match);
        sb_pattern_free(p);
        sb_properties_clear(&properties);
        p = NULL;
        CHECK_INT(scarce.blocks, 0);
    }
    CHECK(done && n > 20);
}

/* ------------------------------------------------------------------------- characters */

/* Sets have the characters that they should have, also at both ends of each length of UTF-8. */
static void test_sets_of_characters(void)
{
    static const struct {
        const char *pattern;
        uint32_t in[4], out[4];
    } cases[] = {
        {"[^\\x{10FFFF}]", {0, 'a', 0xFFFF, 0x10FFFE}, {0x10FFFF, 0x10FFFF, 0x10FFFF, 0x10FFFF}},
        {"\\p{Lu}", {'A', 0xC0, 0x1F1, 0x10400}, {'a', '1', 0x1F2, 0x10428}},
        {"\\p{Han}", {0x4E00, 0x3005, 0x31350, 0x2EBF0}, {0x3002, 0x30FC, 0xFF01, 'a'}},
        {"[\\p{P}\\p{S}]", {0x1FA77, 0x1FAE8, 0x1FAE9, '$'}, {'a', ' ', 0x180E, '0'}},
        {"\\s", {' ', 0x85, 0x3000, 0x0B}, {0x180E, 0x200B, 0xFEFF, 0x1F}},
        {"\\w", {0xB2, 0xBD, 0x301, 0x203F}, {0x2460, '-', 0x2118, 0x1F600}},
        {"[\\w]", {'a', 0x24B6, 0x301, 0x663}, {0xB2, 0xBD, 0x2460, '-'}},
        {"(?i:[sk])", {'s', 'S', 0x17F, 0x212A}, {'t', 'j', 0xDF, 0x1E9E}},
    };
    static struct words words;
    struct sb_steps steps = {.n = 0};
    size_t i, k;

    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(compile(&steps, cases[i].pattern, strlen(cases[i].pattern)));
        for (k = 0; k < 8; k++) {
            uint32_t cp = k < 4 ? cases[i].in[k] : cases[i].out[k - 4];
            char text[8];
            int n = cp < 0x80 ? sprintf(text, "%c", (int)cp)
                    : cp < 0x800
                        ? sprintf(text, "%c%c", (int)(0xC0 | cp >> 6), (int)(0x80 | (cp & 63)))
                    : cp < 0x10000 ? sprintf(text, "%c%c%c", (int)(0xE0 | cp >> 12),
                                             (int)(0x80 | (cp >> 6 & 63)), (int)(0x80 | (cp & 63)))
                                   : sprintf(text, "%c%c%c%c", (int)(0xF0 | cp >> 18),
                                             (int)(0x80 | (cp >> 12 & 63)),
                                             (int)(0x80 | (cp >> 6 & 63)), (int)(0x80 | (cp & 63)));
            memcpy(text + n, text, (size_t)n); /* The character twice: these are two words if it is
                                                  in the set, else one. */
            CHECK_OK(split(&steps, text, (size_t)n * 2 < sizeof text ? (size_t)n * 2 : sizeof text,
                           &words));
            if ((words.n == 2) != (k < 4))
                FAIL("%s and U+%04X: %zu words", cases[i].pattern, (unsigned)cp, words.n);
        }
    }
    sb_steps_clear(&steps);
}

TEST_BEGIN
RUN(test_reference_words);
RUN(test_refusals_name_the_place);
RUN(test_nothing_is_read_behind_the_end);
RUN(test_two_intervals);
RUN(test_patterns_too_big);
RUN(test_by_hand_as_compiled);
RUN(test_steps_are_bounded);
RUN(test_steps_of_a_call);
RUN(test_real_patterns_are_cheap);
RUN(test_any_text_as_pattern);
RUN(test_properties_are_computed_once);
RUN(test_no_memory);
RUN(test_sets_of_characters);
TEST_END
