/*
 * Head norms and rotary position embedding of a pass, and the copy of its K and V into the cache.
 * Half a warp takes one token and head (rope_head.cuh).
 *
 *   qkv row (f32):   q head 0 .. heads - 1 | k head 0 .. kv_heads - 1 | v head 0 .. kv_heads - 1
 *                    normed, rotated         normed, rotated, cached    cached
 *
 * q and k are replaced in qkv; k and v are written to the planes as `type`. In both classes the
 * norm adds in the CPU's 16 lanes and tree, since a head is short, and a rotation is four rounded
 * products. So the f32 values are the CPU's bit for bit (kernels/cpu/rope.c), and a 16-bit cache
 * holds them, rounded once.
 */
#include "kernels/cuda/rope_head.cuh"

enum { HEADS = 8, THREADS = HEADS * HEAD_LANES }; /* of a block */

/* Grid: tokens, pieces of HEADS heads. A warp's lanes go together, so the half warps without a head
 * repeat the last one, which is a v and not replaced, and write nothing. */
template <typename T, int UNITS>
static __global__ void __launch_bounds__(THREADS)
    rope_kv(float *qkv, const sb_attention a, const sb_pass pass)
{
    const int mine = (int)blockIdx.y * HEADS + (int)threadIdx.x / HEAD_LANES,
              all = a.heads + 2 * a.kv_heads, h = min(mine, all - 1);
    const int64_t token = blockIdx.x, pos = pass.pos[token], seq = pass.seq[token];
    const bool is_q = h < a.heads, is_v = h >= a.heads + a.kv_heads, is_mine = h == mine;
    const int64_t kv_head = h - a.heads - (is_v ? a.kv_heads : 0);
    T *const cached = static_cast<T *>(is_v ? a.v : a.k) + pass.base[seq] +
                      (kv_head * pass.cap[seq] + pass.start[seq] + pos) * a.head_dim;
    float *const head = qkv + (token * all + h) * a.head_dim;

    make_head<UNITS>(head, turn_of(a, h, pos), a.q_norm || a.k_norm, a.eps,
                     [=](int d, float value) {
                         if (is_mine && !is_v)
                             head[d] = value;
                         if (is_mine && !is_q)
                             cached[d] = sb_to_cache<T>(value);
                     });
}

extern "C" cudaError_t sb_cuda_rope_kv(float *qkv, const struct sb_attention *attention,
                                       const struct sb_pass *pass, enum sb_dtype type,
                                       cudaStream_t stream)
{
    const unsigned all = (unsigned)(attention->heads + 2 * attention->kv_heads);
    const dim3 grid((unsigned)pass->n_tokens, (all + HEADS - 1) / HEADS), block(THREADS);
    cudaError_t error = cudaSuccess;

    if (pass->n_tokens == 0)
        return cudaSuccess;
    if (attention->head_dim <= 4 * 2 * HEAD_LANES)
        SB_WITH_TYPE(type, error = SB_LAUNCH((rope_kv<T, 4>), grid, block, 0, stream, qkv,
                                             *attention, *pass));
    else
        SB_WITH_TYPE(type, error = SB_LAUNCH((rope_kv<T, 8>), grid, block, 0, stream, qkv,
                                             *attention, *pass));
    return error;
}

cudaError_t sb_load_rope(enum sb_dtype type)
{
    cudaError_t error;

    SB_WITH_TYPE(type, error = sb_load(rope_kv<T, 4>));
    if (error == cudaSuccess)
        SB_WITH_TYPE(type, error = sb_load(rope_kv<T, 8>));
    return error;
}
