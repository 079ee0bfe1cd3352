/* Parts of contents: words found in them, and what is left without words and blanks at the ends. */
#include "chat_parts.h"

#include <string.h>

#include "unicode.h"
#include "utf8.h"

struct sb_part sb_part_of(const struct sb_turn *turn)
{
    return (struct sb_part){turn->content, turn->n};
}

/* Where a word is found in a part for the first time, or NULL. */
const char *sb_part_find(struct sb_part part, const char *word)
{
    const size_t n = strlen(word);
    const char *at = part.at, *end = part.at + part.n;

    while ((size_t)(end - at) >= n && (at = memchr(at, word[0], (size_t)(end - at))) != NULL) {
        if ((size_t)(end - at) >= n && memcmp(at, word, n) == 0)
            return at;
        at++;
    }
    return NULL;
}

int sb_part_begins_with(struct sb_part part, const char *word)
{
    return part.n >= strlen(word) && memcmp(part.at, word, strlen(word)) == 0;
}

int sb_part_ends_with(struct sb_part part, const char *word)
{
    const size_t n = strlen(word);
    return part.n >= n && memcmp(part.at + part.n - n, word, n) == 0;
}

/* What is behind the last such word; the whole part when there is none. */
struct sb_part sb_part_behind_last(struct sb_part part, const char *word)
{
    const char *hit;

    while ((hit = sb_part_find(part, word)) != NULL) {
        hit += strlen(word);
        part.n -= (size_t)(hit - part.at);
        part.at = hit;
    }
    return part;
}

struct sb_part sb_part_without_newlines_before(struct sb_part part)
{
    for (; part.n > 0 && part.at[0] == '\n'; part.n--)
        part.at++;
    return part;
}

struct sb_part sb_part_without_newlines_behind(struct sb_part part)
{
    while (part.n > 0 && part.at[part.n - 1] == '\n')
        part.n--;
    return part;
}

/* What str.strip() takes for white space in Python: White_Space and four control characters. */
static int is_blank(uint32_t cp)
{
    return sb_is_space(cp) || (cp >= 0x1C && cp <= 0x1F);
}

struct sb_part sb_part_stripped(struct sb_part part)
{
    size_t begin = 0, end = 0;
    uint32_t cp = 0;

    for (size_t at = 0, step; at < part.n; at += step) {
        step = (size_t)sb_utf8_step(part.at + at, part.n - at, &cp);
        if (is_blank(cp))
            continue;
        begin = end ? begin : at;
        end = at + step;
    }
    return (struct sb_part){part.at + begin, end - begin};
}
