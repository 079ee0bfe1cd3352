/*
 * Moves of cached columns: to another slot, or inside one, in place, as the paper's EQSPEC needs
 * after every round. For each move, plane and head, columns [from, from + len) go to [to, to +
 * len). One block walks through a whole head, because blocks run in no order. Inside a slot:
 *
 *     to the left, ascending pieces                 to the right, descending pieces
 *
 *     from      v v v v | v v v v                   from  v v v v | v v v v
 *     to    ^ ^ ^ ^ | ^ ^ ^ ^                       to        ^ ^ ^ ^ | ^ ^ ^ ^
 *           1st       2nd                                     2nd       1st
 *
 * All threads read a piece into registers, meet at a barrier, and write it. What a piece overwrites
 * has been read, either by this piece before the barrier or by an earlier piece. What the next
 * piece reads lies beyond what this one writes, on the side that the walk goes to. So one barrier a
 * piece is enough.
 *
 * Bytes are copied 16 at a time where both ends are aligned to 16 (heads of 8 bf16 elements or a
 * multiple), else 4 or 2 at a time. A thread has 64 bytes in flight and a block 16 KiB, and there
 * are n * n_planes * kv_heads blocks, so memory is the limit.
 */
#include "kernels/cuda/common.cuh"

enum { THREADS = 256, EACH = 4, PIECE = THREADS * EACH };

/* Copies n elements of U. */
template <typename U>
static __device__ void copy(char *to_bytes, const char *from_bytes, int64_t n)
{
    const int64_t pieces = (n + PIECE - 1) / PIECE;
    const U *from = reinterpret_cast<const U *>(from_bytes);
    U *to = reinterpret_cast<U *>(to_bytes);

    for (int64_t i = 0; i < pieces; i++) {
        const int64_t first = (to_bytes < from_bytes ? i : pieces - 1 - i) * PIECE + threadIdx.x;
        U held[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (first + j * THREADS < n)
                held[j] = from[first + j * THREADS];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (first + j * THREADS < n)
                to[first + j * THREADS] = held[j];
    }
}

/* Grid: heads of planes of moves, heads running fastest. bytes: of an element */
static __global__ void __launch_bounds__(THREADS)
    move_heads(char *planes, const sb_move a, int32_t bytes)
{
    const int64_t head = blockIdx.x % a.kv_heads, plane = blockIdx.x / a.kv_heads % a.n_planes;
    const int64_t i = blockIdx.x / a.kv_heads / a.n_planes, column = (int64_t)a.head_dim * bytes;
    char *first = planes + plane * a.plane_stride * bytes;
    char *from = first + a.from_base[i] * bytes + (head * a.from_cap[i] + a.from[i]) * column;
    char *to = first + a.to_base[i] * bytes + (head * a.to_cap[i] + a.to[i]) * column;
    const int64_t n = a.len[i] * column;
    const uint64_t low = (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) |
                          (uint64_t)n) %
                         16;

    if (from == to || n == 0)
        return;
    if (low == 0)
        copy<uint4>(to, from, n / 16);
    else if (low % 4 == 0)
        copy<uint32_t>(to, from, n / 4);
    else
        copy<uint16_t>(to, from, n / 2);
}

extern "C" cudaError_t sb_cuda_move(void *planes, enum sb_dtype type, const struct sb_move *moves,
                                    cudaStream_t stream)
{
    const int64_t blocks = (int64_t)moves->n * moves->n_planes * moves->kv_heads;

    if (blocks == 0)
        return cudaSuccess;
    return SB_LAUNCH(move_heads, dim3((unsigned)blocks), dim3(THREADS), 0, stream,
                     static_cast<char *>(planes), *moves, type == SB_F32 ? 4 : 2);
}

cudaError_t sb_load_move(enum sb_dtype)
{
    return sb_load(move_heads);
}
