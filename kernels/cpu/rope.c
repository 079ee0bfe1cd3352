/*
 * Norms and rotates the heads of one token, and writes its K and V to the cache.
 *
 *     qkv row:   q head 0 .. heads - 1 | k head 0 .. kv_heads - 1 | v head 0 .. kv_heads - 1
 *                normed, rotated         normed, rotated, cached    cached
 *
 * K is cached rotated, and rounded to the type of the cache after that. Its rotation belongs to its
 * position, which never changes, so realignment is a copy. The row keeps the floats, which nothing
 * reads any more: attention takes K and V from the cache, those of this pass too.
 *
 * Only the first rot_dim elements of a head are rotated, in pairs: (a, b) becomes (a cos - b sin,
 * b cos + a sin), by four products that are each rounded. There is no fused operation in it, so any
 * vector width gives the same bits.
 */
#include "cached.h"
#include "level.h"
#include "norm.h"

/* head [2 * half]: pairs (i, i + half). cos, sin [half] */
static void rotate_halves(float *head, const float *cosine, const float *sine, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = a * cosine[i] - b * sine[i];
        head[i + half] = b * cosine[i] + a * sine[i];
    }
}

/* head [2 * half]: pairs (2i, 2i + 1) */
static void rotate_neighbours(float *head, const float *cosine, const float *sine, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        float a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = a * cosine[i] - b * sine[i];
        head[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
}

/* qkv [(heads + 2 * kv_heads) * head_dim] of the token */
void SB_LEVEL(rope_kv)(float *qkv, const struct sb_attention *a, const struct sb_pass *pass,
                       int32_t token, enum sb_dtype type)
{
    int64_t head_dim = a->head_dim, half = a->rot_dim / 2, pos = pass->pos[token],
            seq = pass->seq[token];
    const float *cosine = a->cos + pos * half, *sine = a->sin + pos * half;
    const float *v = qkv + (int64_t)(a->heads + a->kv_heads) * head_dim;

    for (int32_t h = 0; h < a->heads + a->kv_heads; h++) {
        float *head = qkv + h * head_dim;
        const float *weight = h < a->heads ? a->q_norm : a->k_norm;
        if (weight)
            norm_row(head, head, weight, head_dim, a->eps);
        if (a->rot_interleaved)
            rotate_neighbours(head, cosine, sine, half);
        else
            rotate_halves(head, cosine, sine, half);
    }
    for (int32_t h = 0; h < a->kv_heads; h++) {
        int64_t at = pass->base[seq] +
                     ((int64_t)h * pass->cap[seq] + pass->start[seq] + pos) * head_dim;
        narrow_cached(a->k, at, qkv + (a->heads + h) * head_dim, head_dim, type);
        narrow_cached(a->v, at, v + h * head_dim, head_dim, type);
    }
}
