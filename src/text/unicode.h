/* Character classes of the tokenizers' patterns, on utf8proc's categories (Unicode 15 in 2.8). */
#ifndef SB_UNICODE_H
#define SB_UNICODE_H

#include <stdint.h>
#include <utf8proc.h>

/* White_Space: what \s means to Oniguruma. PCRE2 adds U+180E, which is no space since Unicode 6.3. */
static inline int sb_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 9 && cp <= 13);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static inline int sb_is_letter(uint32_t cp)
{
    utf8proc_category_t category;

    if (cp < 0x80)
        return (cp | 32) >= 'a' && (cp | 32) <= 'z';
    category = utf8proc_category((utf8proc_int32_t)cp);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

static inline int sb_is_number(uint32_t cp)
{
    utf8proc_category_t category;

    if (cp < 0x80)
        return cp >= '0' && cp <= '9';
    category = utf8proc_category((utf8proc_int32_t)cp);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

/* \w: letters, marks, decimal digits, letter numbers, connectors, joiners, and the few symbols that
 * Unicode lists as alphabetic although they are no letters (circled and squared capitals). */
static inline int sb_is_word(uint32_t cp)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)cp);

    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
           category == UTF8PROC_CATEGORY_PC || cp == 0x200C || cp == 0x200D ||
           (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
           (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
}

#endif
