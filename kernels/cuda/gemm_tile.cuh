/*
 * What a block of a 16-bit product does with a stage of its ring, and with its sums: the steps of
 * mma, and the results with bias, gated or not, which those of gemm_wgmma.cu share. gemm_mma.cu
 * says how sums are formed.
 */
#ifndef SB_CUDA_GEMM_TILE_CUH
#define SB_CUDA_GEMM_TILE_CUH

#include "kernels/cuda/gemm_ring.cuh"

namespace
{

template <enum sb_dtype TYPE>
struct element {
    typedef __nv_bfloat16 type;
};
template <>
struct element<SB_F16> {
    typedef __half type;
};

/* The operands of one step of 16 for a warp. */
template <class S>
struct gemm_step {
    uint32_t a[S::MT][4];
    uint32_t b[S::WARP_NT][2];

    /* stage: with this warp's and lane's offsets, `a_at` and `b_at`, for w and x */
    __device__ __forceinline__ void load(shared_at a_at, shared_at b_at, int tile, int step)
    {
        if (SB_CUDA_FAULT(STEPS_EXCHANGED) && S::X_ROWS == 64 && S::PANELS == 2)
            step ^= 1;
#pragma unroll
        for (int t = 0; t < S::MT; t++) /* the swizzle of a step is an xor with bits 5 and 6 */
            ldmatrix4(a[t], (a_at ^ (step << 5)) + (t * S::KT + tile) * TILE_BYTES);
        b_at += tile * ROW_BYTES + step * 32;
#pragma unroll
        for (int t = 0; t + 2 <= S::WARP_NT; t += 2) {
            uint32_t r[4];
            ldmatrix4(r, b_at + t * 8 * S::X_PITCH);
            b[t][0] = r[0], b[t][1] = r[1], b[t + 1][0] = r[2], b[t + 1][1] = r[3];
        }
        if (S::WARP_NT % 2) /* x2 ignores the addresses that lanes from 16 on give */
            ldmatrix2(b[S::WARP_NT - 1], b_at + (S::WARP_NT - 1) * 8 * S::X_PITCH);
    }

    template <enum sb_dtype TYPE>
    __device__ __forceinline__ void add_to(float (&acc)[S::MT][S::WARP_NT][4]) const
    {
#pragma unroll
        for (int t = 0; t < S::MT; t++)
#pragma unroll
            for (int n = 0; n < S::WARP_NT; n++)
                mma<TYPE>(acc[t][n], a[t], b[n][0], b[n][1]);
    }
};

/* A warp's panels and rows of x in its block, and where this lane finds their operands in a stage.
 */
template <class S>
struct gemm_place {
    int panel, x;
    shared_at a, b;

    __device__ __forceinline__ gemm_place()
        : panel((int)threadIdx.x / 32 % S::WR * S::MT),
          x((int)threadIdx.x / 32 / S::WR * S::WARP_NT * 8)
    {
        const int lane = (int)threadIdx.x % 32;

        a = panel * S::PIECE_BYTES + swizzled<ROW_BYTES>(lane % 16, lane / 16);
        b = S::X_AT + (x + lane / 16 * 8 + lane % 8) * S::X_PITCH + lane / 8 % 2 * 16;
    }
};

template <class S>
__device__ __forceinline__ void clear_sums(float (&acc)[S::MT][S::WARP_NT][4])
{
#pragma unroll
    for (int i = 0; i < S::MT * S::WARP_NT * 4; i++)
        acc[i / 4 / S::WARP_NT][i / 4 % S::WARP_NT][i % 4] = 0.0f;
}

/* Adds what the first `tiles` tiles of a stage give. between(tile) is called behind the first mma
 * of each tile, while the tensor core works. All operands have been taken when it returns. */
template <enum sb_dtype TYPE, class S, typename F>
__device__ __forceinline__ void add_stage(float (&acc)[S::MT][S::WARP_NT][4],
                                          gemm_step<S> (&step)[2], shared_at stage,
                                          const gemm_place<S> &at, int tiles, F between)
{
    if (S::AHEAD)
        step[0].load(stage + at.a, stage + at.b, 0, 0);
#pragma unroll
    for (int tile = 0; tile < S::KT; tile++) {
        const bool is_last = tile + 1 == S::KT || tile + 1 == tiles;
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            if (!S::AHEAD)
                step[k % 2].load(stage + at.a, stage + at.b, tile, k);
            else if (k + 1 < STEPS)
                step[(k + 1) % 2].load(stage + at.a, stage + at.b, tile, k + 1);
            else if (!is_last)
                step[0].load(stage + at.a, stage + at.b, tile + 1, 0);
            step[k % 2].template add_to<TYPE>(acc);
            if (k == 0)
                between(tile);
        }
        if (is_last)
            break;
    }
}

/* The outputs of this thread's results of one panel: of each half of its rows, which, and whether
 * the weight has it. */
struct gemm_outputs {
    int o[2];
    bool is_real[2];

    __device__ __forceinline__ gemm_outputs(const gemm_args &g, int panel)
    {
        const int lane_row = threadIdx.x % 32 / 4, i = panel * 8 + lane_row;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            o[half] = g.gated ? i + half * g.gated : panel * 16 + half * 8 + lane_row;
            is_real[half] = g.gated ? i < g.gated : o[half] < g.n_out;
        }
    }
};

/* y of this thread's results of one panel. */
template <class S>
__device__ __forceinline__ void store(const gemm_args &g, const float (&acc)[S::WARP_NT][4],
                                      const float (&bias)[2], int panel, int first_r)
{
    const gemm_outputs at(g, panel);

#pragma unroll
    for (int n = 0; n < S::WARP_NT * 2; n++) {
        const int r = first_r + n / 2 * 8 + threadIdx.x % 4 * 2 + n % 2;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = acc[n / 2][half * 2 + n % 2];
            if (at.is_real[half] && r < g.m)
                g.y[(int64_t)r * g.y_ld + at.o[half]] = g.bias ? sum + bias[half] : sum;
        }
    }
}

/* silu(gate) * up as act.cu computes it. */
template <typename T>
__device__ __forceinline__ T gated_output(float gate, float up)
{
    float silu = gate / (1.0f + sb_exp(0.0f - gate));

    if (SB_CUDA_FAULT(SILU_ROUNDED))
        silu = sb_to_f32(sb_from_f32<T>(silu));
    return sb_from_f32<T>(silu * up);
}

/* The same, gated. */
template <class S, typename T>
__device__ __forceinline__ void store_gated(const gemm_args &g, const float (&acc)[S::WARP_NT][4],
                                            const float (&bias)[2], int panel, int first_r)
{
    const gemm_outputs at(g, panel);
    const int o = at.o[0];

    if (!at.is_real[0])
        return;
#pragma unroll
    for (int n = 0; n < S::WARP_NT * 2; n++) {
        const int r = first_r + n / 2 * 8 + threadIdx.x % 4 * 2 + n % 2;
        float gate = acc[n / 2][n % 2], up = acc[n / 2][2 + n % 2];
        if (g.bias) {
            gate += bias[0];
            up += bias[1];
        }
        if (r < g.m)
            ((T *)g.act)[r * g.act_ld + o] = SB_CUDA_FAULT(GATE_AND_UP_SWAPPED)
                                                 ? gated_output<T>(up, gate)
                                                 : gated_output<T>(gate, up);
    }
}

/* Zeros behind the gated outputs of the block's rows, which the block of the last panel writes. */
template <class S, typename T>
__device__ __forceinline__ void store_padding(const gemm_args &g, int first_panel, int first_x,
                                              int x_rows)
{
    const int n = (int)g.act_ld - g.gated;

    if (first_panel + S::PANELS < g.panels)
        return;
    for (int i = threadIdx.x; i < n * x_rows; i += S::THREADS)
        ((T *)g.act)[(first_x + i / n) * g.act_ld + g.gated + i % n] = sb_from_f32<T>(0.0f);
}

/* Writes the results of a warp whose first panel is `panel` and first row of x `first_r`. All of
 * the bias is loaded before anything is stored, so that the warp waits for it once. */
template <enum sb_dtype TYPE, class S>
__device__ __forceinline__ void store_all(const gemm_args &g,
                                          const float (&acc)[S::MT][S::WARP_NT][4], int panel,
                                          int first_r)
{
    float bias[S::MT][2];

#pragma unroll
    for (int t = 0; t < S::MT; t++) {
        const gemm_outputs at(g, panel + t);
#pragma unroll
        for (int half = 0; half < 2; half++)
            bias[t][half] = g.bias && at.is_real[half] ? g.bias[at.o[half]] : 0.0f;
    }
#pragma unroll
    for (int t = 0; t < S::MT; t++)
        if (g.act)
            store_gated<S, typename element<TYPE>::type>(g, acc[t], bias[t], panel + t, first_r);
        else
            store<S>(g, acc[t], bias[t], panel + t, first_r);
}

/* All of a block by mma.sync: its panels from first_panel on, and its rows of x from first_x on,
 * which `rows` finds. */
template <enum sb_dtype TYPE, class S, class ROWS>
__device__ __forceinline__ void multiply_block(const gemm_args &g, uint8_t *shared, int first_panel,
                                               int first_x, const ROWS &rows)
{
    const gemm_ring<S, ROWS> ring(g, shared, first_panel, first_x, rows);
    const int n_stages = (g.n_tiles + S::KT - 1) / S::KT;
    const gemm_place<S> place;
    float acc[S::MT][S::WARP_NT][4];
    gemm_step<S> step[2];

    ring.begin();
    ring.fill_all();
    clear_rows<S>(shared, ring.x_rows);
    clear_sums<S>(acc);
    cp_async_wait<S::STAGES - 1>();
    __syncthreads();
    ring.wait(0, 0);

    for (int i = 0, slot = 0, turn = 0, last_slot = 0;; i++) {
        add_stage<TYPE>(acc, step, ring.stage(slot), place, g.n_tiles - i * S::KT, [&](int tile) {
            if (tile == 0 && i > 0) {
                ring.fill_w(last_slot, i - 1 + S::STAGES);
                ring.fill_x(last_slot, i - 1 + S::STAGES);
            }
        });
        if (i + 1 == n_stages)
            break;
        cp_async_wait<S::STAGES - 2>();
        __syncthreads(); /* x of stage i + 1 is here, and all have what they need of stage i */
        last_slot = slot;
        slot = slot + 1 == S::STAGES ? 0 : slot + 1;
        turn += slot == 0;
        ring.wait(slot, turn);
    }

    store_all<TYPE, S>(g, acc, first_panel + place.panel, first_x + place.x);
    if (g.act)
        store_padding<S, typename element<TYPE>::type>(g, first_panel, first_x, ring.x_rows);
}

} // namespace

#endif
