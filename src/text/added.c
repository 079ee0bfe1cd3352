/*
 * Added tokens: strings that are cut out of a text before anything else looks at it.
 *
 * At each place the longest token that matches is taken, and the search goes on behind it. The
 * tokens are sorted by their bytes. Those that begin with the same n bytes are then neighbours, the
 * shortest of them first, so a sorted array serves as a trie without nodes:
 *
 *   first['<'] -> <       all that begin with '<'
 *                 <s>     of these, <s> and <s>x have 's' as their second byte
 *                 <s>x
 *                 <x>
 *
 * A search starts with the range of tokens that begin with the text's first byte, and every further
 * byte of the text narrows the range: by binary search where the tokens of the range differ in that
 * byte, by one comparison where they do not. So a place costs one look-up in a table unless a token
 * could begin there, and otherwise no more than the bytes that the text has in common with some
 * token, however many tokens there are. Rejected: an automaton over all tokens (Aho and Corasick,
 * 1975). It looks at each byte once, but takes ten times the memory and code, and tokens are short.
 */
#include <string.h>

#include "pipeline.h"
#include "sort.h"
#include "status.h"
#include "unicode.h"
#include "utf8.h"

int32_t sb_added_add(struct sb_added *added, const struct sb_mem *mem,
                     const struct sb_added_token *token)
{
    struct sb_added_token *grown = sb_grow(mem, added->tokens, &added->capacity, added->n + 1,
                                           sizeof *grown);

    if (!grown)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for the added tokens");
    added->tokens = grown;
    added->tokens[added->n] = *token;
    added->tokens[added->n].order = (uint32_t)added->n;
    added->n++;
    return SPECBATCH_OK;
}

void sb_added_clear(struct sb_added *added, const struct sb_mem *mem)
{
    for (size_t i = 0; i < added->n; i++)
        sb_bytes_clear(&added->tokens[i].content);
    sb_free(mem, added->tokens);
    added->tokens = NULL;
}

/* ------------------------------------------------------------------------ sorting */

/*
 * The order of the table: tokens that are looked for in the text as it came, then those for
 * normalised text, and both by their bytes. Two tokens may be alike once they are normalised. Then
 * a special one comes first, and after that the file's order counts. Of equal tokens the search
 * finds the first, so it finds the one that the reference implementation finds.
 */
static int in_table(const void *first, const void *second)
{
    const struct sb_added_token *a = first, *b = second;
    const size_t n = a->content.n < b->content.n ? a->content.n : b->content.n;

    if (a->normalized != b->normalized)
        return a->normalized - b->normalized;
    const int order = memcmp(a->content.data, b->content.data, n);
    if (order == 0 && a->content.n != b->content.n)
        return a->content.n < b->content.n ? -1 : 1;
    if (order == 0 && a->special != b->special)
        return b->special - a->special;
    return order ? order : (a->order > b->order) - (a->order < b->order);
}

void sb_added_sort(struct sb_added *added)
{
    sb_sort(added->tokens, added->n, sizeof *added->tokens, in_table);
    memset(added->first, 0, sizeof added->first);
    for (size_t i = 0; i < added->n; i++) {
        const struct sb_added_token *token = &added->tokens[i];
        struct sb_added_range
            *range = &added->first[token->normalized != 0][(unsigned char)token->content.data[0]];
        if (range->end == 0)
            range->begin = (uint32_t)i;
        range->end = (uint32_t)i + 1;
    }
}

/* ----------------------------------------------------------------------- searching */

/* The byte of a token at `depth`, or -1 at its end. All tokens of a range that has been narrowed
 * `depth` times have at least that many bytes. */
static int byte_at(const struct sb_added *added, uint32_t i, size_t depth)
{
    const struct sb_bytes *content = &added->tokens[i].content;
    return depth < content->n ? (unsigned char)content->data[depth] : -1;
}

/* The first token of a range whose byte at `depth` is not below `byte`. */
static uint32_t lower(const struct sb_added *added, struct sb_added_range range, size_t depth,
                      int byte)
{
    while (range.begin < range.end) {
        uint32_t middle = range.begin + (range.end - range.begin) / 2;
        if (byte_at(added, middle, depth) < byte)
            range.begin = middle + 1;
        else
            range.end = middle;
    }
    return range.begin;
}

/* The tokens of a range that have `byte` at `depth`. */
static struct sb_added_range narrow(const struct sb_added *added, struct sb_added_range range,
                                    size_t depth, int byte)
{
    int low = byte_at(added, range.begin, depth), high = byte_at(added, range.end - 1, depth);

    if (byte < low || byte > high)
        return (struct sb_added_range){range.begin, range.begin};
    if (low < high) {
        range.begin = lower(added, range, depth, byte);
        range.end = lower(added, range, depth, byte + 1);
    }
    return range;
}

/* The longest token at the beginning of a text, or NULL. */
static const struct sb_added_token *match(const struct sb_added *added, int normalized,
                                          const char *text, size_t n)
{
    struct sb_added_range range = added->first[normalized][(unsigned char)text[0]];
    const struct sb_added_token *best = NULL;

    for (size_t depth = 1; range.begin < range.end; depth++) {
        if (added->tokens[range.begin].content.n == depth)
            best = &added->tokens[range.begin];
        if (depth == n)
            break;
        range = narrow(added, range, depth, (unsigned char)text[depth]);
    }
    return best;
}

size_t sb_added_prefix(const struct sb_added *added, const char *text, size_t n)
{
    const struct sb_added_token *token = added->n > 0 && n > 0 ? match(added, 1, text, n) : NULL;
    return token ? token->content.n : 0;
}

/* The code point that ends at text + at, and where it begins. There is one, as at > 0, and the text
 * is valid. */
static uint32_t point_before(const char *text, size_t at, size_t *begin)
{
    uint32_t cp = 0;
    size_t start = at - 1;

    while (start > 0 && ((unsigned char)text[start] & 0xC0) == 0x80)
        start--;
    sb_utf8_step(text + start, at - start, &cp);
    *begin = start;
    return cp;
}

/* Whether a word goes on before or behind the bytes from `begin` to `end`. */
static int inside_word(const char *text, size_t n, size_t begin, size_t end)
{
    uint32_t cp = 0;
    size_t at;

    if (begin > 0 && sb_is_word(point_before(text, begin, &at)))
        return 1;
    return end < n && sb_utf8_step(text + end, n - end, &cp) > 0 && sb_is_word(cp);
}

/* The beginning of the white space before `begin`, but not before `limit`. */
static size_t left_over_space(const char *text, size_t begin, size_t limit)
{
    size_t at = begin, before;

    while (at > limit && sb_is_space(point_before(text, at, &before)))
        at = before;
    return at > limit ? at : limit;
}

/* The end of the white space behind `end`. */
static size_t right_over_space(const char *text, size_t n, size_t end)
{
    uint32_t cp = 0;
    int step;

    while (end < n && (step = sb_utf8_step(text + end, n - end, &cp)) > 0 && sb_is_space(cp))
        end += (size_t)step;
    return end;
}

/* ------------------------------------------------------------------------ guarding */

static int is_guarded(const struct sb_guard *guard, const struct sb_added_token *token)
{
    if (token->special)
        return 1;
    for (const char *const *marker = guard->markers; marker && *marker; marker++)
        if (token->content.n == strlen(*marker) &&
            memcmp(token->content.data, *marker, token->content.n) == 0)
            return 1;
    return 0;
}

size_t sb_guard_stretch(const struct sb_guard *guard, const char *text, size_t n, int *inside)
{
    const size_t at = (size_t)(text - guard->text);
    size_t low = 0, high = guard->n_ranges;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (guard->ranges[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    *inside = low < guard->n_ranges && guard->ranges[low].begin <= at;
    if (low < guard->n_ranges) {
        const size_t end = *inside ? guard->ranges[low].end : guard->ranges[low].begin;
        return end - at < n ? end - at : n;
    }
    return n;
}

/* The token to take at the beginning of a text, or NULL. *step is how far the search goes on then:
 * a token that the guard rejects is skipped whole, and the search never looks inside it again. */
static const struct sb_added_token *find(const struct sb_added *added, int normalized,
                                         const struct sb_guard *guard, const char *text, size_t n,
                                         size_t *step)
{
    const struct sb_added_token *token = match(added, normalized, text, n);
    int inside = 0;

    if (token && guard && is_guarded(guard, token)) {
        const size_t limit = sb_guard_stretch(guard, text, n, &inside);
        if (token->content.n > limit)
            token = match(added, normalized, text, limit);
    }
    *step = token ? token->content.n : 1;
    return token && inside && is_guarded(guard, token) ? NULL : token;
}

/*
 * All bytes before done_to have been handed to `segment`. A token that takes the white space before
 * it (lstrip) takes what is left of that. A token that consists of white space may lie before
 * done_to altogether, when the token before it has taken the white space behind itself (rstrip): it
 * is not found then.
 */
int32_t sb_added_split(const struct sb_added *added, int normalized, const struct sb_guard *guard,
                       const char *text, size_t n, sb_segment_fn segment, void *context)
{
    size_t done_to = 0, at = 0;
    size_t spaces_to = 0; /* how far white space behind a token has been followed already */
    int32_t rc = SPECBATCH_OK;

    while (added->n > 0 && at < n) {
        size_t step, begin = at, end;
        const struct sb_added_token *token = find(added, normalized, guard, text + at, n - at,
                                                  &step);
        end = at += step;
        if (!token || (token->single_word && inside_word(text, n, begin, end)))
            continue;
        if (token->lstrip)
            begin = left_over_space(text, begin, done_to);
        if (token->rstrip)
            end = spaces_to = spaces_to > end ? spaces_to : right_over_space(text, n, end);
        if (begin >= end)
            continue;
        if (done_to < begin)
            SB_TRY(segment(context, text + done_to, begin - done_to, -1));
        SB_TRY(segment(context, text + begin, end - begin, token->id));
        done_to = end;
    }
    if (done_to < n)
        SB_TRY(segment(context, text + done_to, n - done_to, -1));
done:
    return rc;
}
