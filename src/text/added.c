/*
 * Added tokens: strings that are cut out of the text before anything else looks at it.
 *
 * At each position the longest token that matches wins, then the search goes on behind it (leftmost
 * longest, no overlap). Tokens are chained by first byte: a position costs one table look-up unless a
 * token could begin there. A trie would be faster for thousands of tokens with a common beginning; real
 * tokenizers have between 3 and 300, and "<" is rare in text.
 */
#include <string.h>

#include "pipeline.h"
#include "status.h"
#include "unicode.h"
#include "utf8.h"

int32_t sb_added_add(struct sb_added *added, const struct sb_mem *mem, const struct sb_added_token *token)
{
    uint32_t *first = &added->first[token->normalized != 0][(unsigned char)token->content.data[0]];

    if (added->n == added->capacity) {
        size_t capacity = added->capacity ? added->capacity * 2 : 32;
        struct sb_added_token *grown = sb_realloc(mem, added->tokens, capacity, sizeof *grown);
        if (!grown)
            return sb_fail(SPECBATCH_E_NOMEM, "no memory for the added tokens");
        added->tokens = grown;
        added->capacity = capacity;
    }
    added->tokens[added->n] = *token;
    added->tokens[added->n].next = *first;
    *first = (uint32_t)++added->n;
    return SPECBATCH_OK;
}

void sb_added_clear(struct sb_added *added, const struct sb_mem *mem)
{
    size_t i;

    for (i = 0; i < added->n; i++)
        sb_bytes_clear(&added->tokens[i].content);
    sb_free(mem, added->tokens);
    added->tokens = NULL;
}

/* The longest token at the beginning of text, or NULL. */
static const struct sb_added_token *match(const struct sb_added *added, int normalized, const char *text,
                                          size_t n)
{
    uint32_t i = added->first[normalized][(unsigned char)text[0]];
    const struct sb_added_token *best = NULL;

    for (; i; i = added->tokens[i - 1].next) {
        const struct sb_added_token *token = &added->tokens[i - 1];
        size_t length = token->content.n;
        if (length <= n && (!best || length > best->content.n) &&
            memcmp(text, token->content.data, length) == 0)
            best = token;
    }
    return best;
}

/* The code point that ends at text + at; there is one, and the text is valid. */
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

static int inside_word(const char *text, size_t n, size_t begin, size_t end)
{
    uint32_t cp = 0;
    size_t at;

    if (begin > 0 && sb_is_word(point_before(text, begin, &at)))
        return 1;
    return end < n && sb_utf8_step(text + end, n - end, &cp) > 0 && sb_is_word(cp);
}

static size_t left_over_space(const char *text, size_t begin, size_t limit)
{
    size_t at = begin, before;

    while (at > limit && sb_is_space(point_before(text, at, &before)))
        at = before;
    return at > limit ? at : limit;
}

static size_t right_over_space(const char *text, size_t n, size_t end)
{
    uint32_t cp = 0;
    int step;

    while (end < n && (step = sb_utf8_step(text + end, n - end, &cp)) > 0 && sb_is_space(cp))
        end += (size_t)step;
    return end;
}

int32_t sb_added_split(const struct sb_added *added, int normalized, int plain_special, const char *text,
                       size_t n, sb_segment_fn segment, void *context)
{
    size_t done_to = 0, at = 0;
    int32_t rc = SPECBATCH_OK;

    while (added->n > 0 && at < n) {
        const struct sb_added_token *token = match(added, normalized, text + at, n - at);
        size_t begin = at, end;
        if (!token) {
            at++;
            continue;
        }
        /* A rejected match is skipped whole: the search never looks inside it again. */
        end = at += token->content.n;
        if ((plain_special && token->special) || (token->single_word && inside_word(text, n, begin, end)))
            continue;
        if (token->lstrip)
            begin = left_over_space(text, begin, done_to < begin ? done_to : begin);
        if (token->rstrip)
            end = right_over_space(text, n, end);
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
