/* Random blocks of quantised elements; see random_blocks.h. src/quant.c has drawings of them. */
#include "support/random_blocks.h"

#include <math.h>
#include <string.h>

#include "half.h"
#include "quant.h"
#include "support/trace.h"

static void put_half(uint8_t *at, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    bits = sb_f16_narrow(bits);
    at[0] = (uint8_t)bits;
    at[1] = (uint8_t)(bits >> 8);
}

/* Sets the scales of a block whose bytes are random so that its values are around zero, and nearly
 * as large as `spread`: q is any integer of its range, of a deviation of 0.29 times the range. In
 * the types with minima each minimum is the group's scale, and dmin is d times the middle q. */
static void centre(uint8_t *block, enum sb_dtype dtype, float spread)
{
    const float sign = block[3] & 1 ? -1.0f : 1.0f;
    float middle;

    switch (dtype) {
    case SB_Q8_0:
        put_half(block, sign * spread / 74.0f);
        break;
    case SB_Q4_0:
        put_half(block, sign * spread / 4.6f);
        break;
    case SB_MXFP4: /* q is -12 .. 12, and the scale a power of two: spread / 8 at most */
        block[0] = (uint8_t)(125 + ilogbf(spread) - (block[3] >> 1 & 1));
        break;
    case SB_Q6_K: /* the scales are around zero, with a deviation of 74 */
        put_half(block + 208, sign * spread / (18.5f * 74.0f));
        break;
    default: /* the scales are 0 to 63 */
        middle = dtype == SB_Q4_K ? 7.5f : 15.5f;
        memcpy(block + 8, block + 4, 4);
        for (int g = 0; g < 4; g++)
            block[12 + g] = (uint8_t)((block[12 + g] & 15) * 17);
        put_half(block, sign * spread / (middle * 0.58f * 36.0f));
        put_half(block + 2, sign * spread / (0.58f * 36.0f));
    }
}

/* Makes the elements of a block of 32 zeros from the n-th on. */
static void end_row(uint8_t *block, enum sb_dtype dtype, size_t n)
{
    if (dtype == SB_Q8_0)
        memset(block + 2 + n, 0, 32 - n);
    else if (dtype == SB_MXFP4)
        for (size_t i = n; i < 32; i++)
            block[1 + i % 16] &= i < 16 ? 0xf0 : 0x0f;
    else
        for (size_t i = n; i < 32; i++) {
            uint8_t *at = &block[2 + i % 16];
            *at = i < 16 ? (uint8_t)((*at & 0xf0) | 8) : (uint8_t)((*at & 15) | 0x80);
        }
}

void random_row(void *row, enum sb_dtype dtype, size_t n, enum random_kind kind, float spread,
                uint64_t *state)
{
    const size_t per_block = (size_t)sb_quant_of(dtype)->block;
    const size_t bytes = (size_t)sb_quant_of(dtype)->bytes;
    uint8_t *block = row, scales[12];

    for (size_t at = 0; at < n; at += per_block, block += bytes) {
        for (size_t i = 0; i < bytes; i++)
            block[i] = (uint8_t)(trace_random(state) >> 32);
        memcpy(scales, block + 4, sizeof scales);
        if (kind != RANDOM_WILD)
            centre(block, dtype, spread);
        if (kind == RANDOM_ANY && (dtype == SB_Q4_K || dtype == SB_Q5_K))
            memcpy(block + 4, scales, sizeof scales);
        if (n - at < per_block)
            end_row(block, dtype, n - at);
    }
}
