/* Reading the values of a GGUF file's metadata, which gguf.c has checked. Numbers are little-endian
 * and lie anywhere, so they are put together byte by byte. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "gguf_types.h"
#include "little.h"

size_t sb_gguf_type_size(uint32_t type)
{
    static const unsigned char sizes[SB_GGUF_TYPES] = {
        [SB_GGUF_U8] = 1,  [SB_GGUF_I8] = 1,  [SB_GGUF_U16] = 2, [SB_GGUF_I16] = 2,
        [SB_GGUF_U32] = 4, [SB_GGUF_I32] = 4, [SB_GGUF_F32] = 4, [SB_GGUF_BOOL] = 1,
        [SB_GGUF_U64] = 8, [SB_GGUF_I64] = 8, [SB_GGUF_F64] = 8,
    };

    return type < SB_GGUF_TYPES ? sizes[type] : 0;
}

int sb_gguf_int(const struct sb_gguf_value *value, int64_t *number)
{
    const size_t size = sb_gguf_type_size(value->type);
    const unsigned unused = (unsigned)(64 - 8 * size);
    uint64_t bits;

    switch (value->type) {
    case SB_GGUF_U8:
    case SB_GGUF_U16:
    case SB_GGUF_U32:
    case SB_GGUF_U64:
        bits = sb_little(value->at, size);
        if (bits > INT64_MAX)
            return 0;
        *number = (int64_t)bits;
        return 1;
    case SB_GGUF_I8:
    case SB_GGUF_I16:
    case SB_GGUF_I32:
    case SB_GGUF_I64:
        bits = sb_little(value->at, size) << unused;
        memcpy(number, &bits, sizeof *number);
        *number /= (int64_t)1 << unused; /* exact, and so brings the sign along */
        return 1;
    default:
        return 0;
    }
}

/* The shortest decimal number that rounds to an f32, as a double. The digits are written without
 * the decimal point, which depends on the locale. */
static double shortest_decimal(float value)
{
    char text[48], digits[48];
    double decimal = value;

    for (int precision = 0; precision < 9; precision++) {
        int n = 0, at = 0;
        snprintf(text, sizeof text, "%.*e", precision, (double)value);
        for (; text[at] && text[at] != 'e'; at++)
            if (text[at] == '-' || (text[at] >= '0' && text[at] <= '9'))
                digits[n++] = text[at];
        snprintf(digits + n, sizeof digits - (size_t)n, "e%ld",
                 strtol(text + at + 1, NULL, 10) - precision);
        decimal = strtod(digits, NULL);
        if ((float)decimal == value)
            return decimal;
    }
    return value;
}

int sb_gguf_double(const struct sb_gguf_value *value, double *number)
{
    const size_t size = sb_gguf_type_size(value->type);
    int64_t whole;
    uint64_t bits;
    uint32_t half;
    float narrow;
    double wide;

    if (value->type == SB_GGUF_F32) {
        half = (uint32_t)sb_little(value->at, size);
        memcpy(&narrow, &half, sizeof narrow);
        wide = isfinite(narrow) ? shortest_decimal(narrow) : (double)narrow;
    } else if (value->type == SB_GGUF_F64) {
        bits = sb_little(value->at, size);
        memcpy(&wide, &bits, sizeof wide);
    } else {
        if (!sb_gguf_int(value, &whole))
            return 0;
        wide = (double)whole;
    }
    if (!isfinite(wide))
        return 0;
    *number = wide;
    return 1;
}

int sb_gguf_bool(const struct sb_gguf_value *value, int *flag)
{
    if (value->type != SB_GGUF_BOOL)
        return 0;
    *flag = value->at[0] != 0;
    return 1;
}

const char *sb_gguf_string(const struct sb_gguf_value *value)
{
    return value->type == SB_GGUF_STRING ? (const char *)value->at : NULL;
}

int sb_gguf_is(const struct sb_gguf_value *value, const char *text)
{
    const char *string = sb_gguf_string(value);

    return string && value->count == strlen(text) && memcmp(string, text, strlen(text)) == 0;
}

int sb_gguf_take(struct sb_gguf_value *array, struct sb_gguf_value *element)
{
    const size_t size = sb_gguf_type_size(array->of);

    if (array->type != SB_GGUF_ARRAY || array->count == 0 || array->of == SB_GGUF_ARRAY)
        return 0;
    *element = (struct sb_gguf_value){.type = array->of, .at = array->at};
    array->count--;
    array->at += size;
    if (array->of == SB_GGUF_STRING) {
        element->count = sb_little(array->at, sizeof(uint64_t));
        element->at += sizeof(uint64_t);
        array->at = element->at + element->count;
    }
    return 1;
}
