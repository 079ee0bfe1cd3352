/*
 * Unicode 16.0: the categories of characters, their properties by name, and the normal forms.
 *
 * The ids of a text must be the same on every machine. The tables of a system library change with
 * the distribution, so the library has its own. What is asked of every character of a text takes
 * one look-up in a table.
 */
#ifndef SB_UNICODE_H
#define SB_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bytes.h"
#include "unicode_tables.h"

/* General categories (https://www.unicode.org/reports/tr44/#General_Category_Values). */
enum {
    SB_UNICODE_CN,
    SB_UNICODE_LU,
    SB_UNICODE_LL,
    SB_UNICODE_LT,
    SB_UNICODE_LM,
    SB_UNICODE_LO,
    SB_UNICODE_MN,
    SB_UNICODE_MC,
    SB_UNICODE_ME,
    SB_UNICODE_ND,
    SB_UNICODE_NL,
    SB_UNICODE_NO,
    SB_UNICODE_PC,
    SB_UNICODE_PD,
    SB_UNICODE_PS,
    SB_UNICODE_PE,
    SB_UNICODE_PI,
    SB_UNICODE_PF,
    SB_UNICODE_PO,
    SB_UNICODE_SM,
    SB_UNICODE_SC,
    SB_UNICODE_SK,
    SB_UNICODE_SO,
    SB_UNICODE_ZS,
    SB_UNICODE_ZL,
    SB_UNICODE_ZP,
    SB_UNICODE_CC,
    SB_UNICODE_CF,
    SB_UNICODE_CS,
    SB_UNICODE_CO
};

/* All that is asked of every character (unicode_tables.h). */
static inline const struct sb_unicode_record *sb_unicode_of(uint32_t cp)
{
    if (cp > 0x10FFFF)
        return sb_unicode_records;
    return sb_unicode_records + sb_unicode_page_records[sb_unicode_pages[cp / SB_UNICODE_PAGE] *
                                                            (size_t)SB_UNICODE_PAGE +
                                                        cp % SB_UNICODE_PAGE];
}

static inline int sb_unicode_category(uint32_t cp)
{
    return sb_unicode_of(cp)->category;
}

/* The property White_Space, which is what \s means to Oniguruma. U+180E has lost it in Unicode
 * 6.3. */
static inline int sb_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 9 && cp <= 13);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static inline int sb_is_letter(uint32_t cp)
{
    int category;

    if (cp < 0x80)
        return (cp | 32) >= 'a' && (cp | 32) <= 'z';
    category = sb_unicode_category(cp);
    return category >= SB_UNICODE_LU && category <= SB_UNICODE_LO;
}

static inline int sb_is_number(uint32_t cp)
{
    int category;

    if (cp < 0x80)
        return cp >= '0' && cp <= '9';
    category = sb_unicode_category(cp);
    return category >= SB_UNICODE_ND && category <= SB_UNICODE_NO;
}

/* \w of UTS #18: alphabetic characters, marks, decimal digits, connectors and joiners. */
static inline int sb_is_word(uint32_t cp)
{
    return (sb_unicode_of(cp)->flags & SB_UNICODE_WORD) != 0;
}

struct sb_unicode_range {
    uint32_t first, last;
};

/* Goes through the code points of a property, in ascending order and as ranges that do not touch.
 * It points into constant tables, so a copy of it can begin again from where it was copied. */
struct sb_unicode_set {
    const unsigned char *next, *end;
    uint32_t at;
};

/* The name of a property as names are compared: in lower case, without blanks, '_' and '-'. False:
 * it is longer than any name, or has a NUL. */
bool sb_unicode_name_key(char key[SB_UNICODE_NAME_ROOM], const char *name, size_t n);

/*
 * Begins the set of a property, which is named as regular expressions do, in any case and with
 * blanks, '_' and '-' ignored: a general category or a group of them ("Lu", "Letter", "LC"), a
 * script ("Han", "Hani"; that is the property Script, never Script_Extensions), a binary property
 * ("White_Space", "Alpha"), "Any", "Assigned" or "ASCII". False: there is none of that name.
 */
bool sb_unicode_property(struct sb_unicode_set *set, const char *name, size_t n);
/* The next range; false when there is none left. */
bool sb_unicode_next(struct sb_unicode_set *set, struct sb_unicode_range *range);

/*
 * Normal forms (https://www.unicode.org/reports/tr15/). A form is three bits: composed, compatible,
 * and as of 9.
 *
 * SB_AS_OF_9 is the form as Unicode 9 knew it. Characters that came later were not assigned there,
 * so they neither decompose nor compose, and marks among them keep their place. Hugging Face's
 * tokenizers normalise so, since the crate that they use for it (unicode-normalization-alignments)
 * has the tables of that version. The crate with which they split (onig) has newer ones.
 */
enum { SB_NFD = 0, SB_NFC = 1, SB_NFKD = 2, SB_NFKC = 3, SB_AS_OF_9 = 4 };

/* Code points that are on their way into a form. It starts from all zero with `mem` set, and is
 * kept from call to call. */
struct sb_points {
    const struct sb_mem *mem;
    uint32_t *data;
    size_t n, capacity;
};
void sb_points_clear(struct sb_points *points);

/* The length of a beginning of the text that is in the form already; n when nothing is left to do.
 * What follows can change the last character of that beginning, which begins at *last, and no
 * other. */
size_t sb_unicode_plain(unsigned form, const char *text, size_t n, size_t *last);

/* Appends the form of a text. The time is linear in the length, whatever the text. E_INVALID (the
 * text is not UTF-8), E_NOMEM; out may then hold a part. */
int32_t sb_unicode_normalize(unsigned form, struct sb_points *work, const char *text, size_t n,
                             struct sb_bytes *out);

#endif
