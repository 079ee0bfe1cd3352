/*
 * mma and ldmatrix of a warp: how matrices lie in the lanes' registers, as kernels/cuda/mma.cuh
 * draws it. These are not in the kernels' own files, where the compiler would report each of the
 * hundreds of loads and stores between arrays of the simulator.
 */
#include "half.h"
#include "tensor.h"

#include <string.h>

namespace cudasim
{

template <bool IS_BF16>
static float element(uint32_t pair, int half)
{
    const uint16_t bits = (uint16_t)(pair >> 16 * half);
    const uint32_t wide = IS_BF16 ? sb_bf16_widen(bits) : sb_f16_widen(bits);
    float value;

    memcpy(&value, &wide, sizeof value);
    return value;
}

template <bool IS_BF16>
static void mma(void *const parts[32])
{
    float a[16][16], b[8][16], d[16][8];

    for (int lane = 0; lane < 32; lane++) {
        const mma_part *p = static_cast<const mma_part *>(parts[lane]);
        const int g = lane / 4, c = lane % 4 * 2;
        for (int half = 0; half < 2; half++) {
            for (int i = 0; i < 4; i++)
                a[g + i % 2 * 8][c + i / 2 * 8 + half] = element<IS_BF16>(p->a[i], half);
            for (int i = 0; i < 2; i++)
                b[g][c + i * 8 + half] = element<IS_BF16>(p->b[i], half);
        }
        for (int i = 0; i < 4; i++)
            d[g + i / 2 * 8][c + i % 2] = p->d[i];
    }
    tensor_core(d, a, b);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            static_cast<mma_part *>(parts[lane])
                ->d[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

void mma_bf16(void *const parts[32]) { mma<true>(parts); }
void mma_f16(void *const parts[32]) { mma<false>(parts); }

template <int N, bool TRANS>
static void ldmatrix(void *const parts[32])
{
    uint16_t rows[8 * N][8];
    const void *at[8 * N];

    for (int i = 0; i < 8 * N; i++) {
        at[i] = static_cast<const ldmatrix_part *>(parts[i])->row;
        if (reinterpret_cast<uintptr_t>(at[i]) % 16)
            misaligned(at[i], 16);
        note_read(at[i], 16);
        memcpy(rows[i], at[i], 16);
    }
    for (int i = 0; i < N; i++)
        note_matrix_rows(at + 8 * i);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < N; i++) {
            const int g = lane / 4, c = lane % 4 * 2;
            const uint32_t lo = TRANS ? rows[8 * i + c][g] : rows[8 * i + g][c];
            const uint32_t hi = TRANS ? rows[8 * i + c + 1][g] : rows[8 * i + g][c + 1];
            static_cast<ldmatrix_part *>(parts[lane])->r[i] = lo | hi << 16;
        }
}

void ldmatrix_2(void *const parts[32]) { ldmatrix<2, false>(parts); }
void ldmatrix_4(void *const parts[32]) { ldmatrix<4, false>(parts); }
void ldmatrix_4_trans(void *const parts[32]) { ldmatrix<4, true>(parts); }

} // namespace cudasim
