/*
 * Moves of cached columns: a sequence is shifted inside its slot, which the paper's EQSPEC does
 * after every round, or copied to another slot. It is the same number of columns in each head of
 * each plane. K is cached rotated by its position, which does not change, so there is nothing to do
 * but to copy.
 *
 *     head:  [ . . . a b c d . . ]  from 3, to 1, len 4   ->   [ . a b c d c d . . ]
 *
 * Columns outside [to, to + len) keep what they held.
 */
#include "level.h"

/* Elements before head `head` of a slot, in its plane. */
static int64_t head_at(const int64_t *base, const int32_t *cap, int64_t i, int64_t head,
                       int64_t head_dim)
{
    return base[i] + head * cap[i] * head_dim;
}

/* planes [n_planes, plane_stride] elements. An item is one head of one plane, for one move. */
void SB_LEVEL(move)(char *planes, int64_t element, const struct sb_move *args, int64_t first,
                    int64_t last)
{
    const int64_t per_move = (int64_t)args->n_planes * args->kv_heads, head_dim = args->head_dim;

    for (int64_t item = first; item < last; item++) {
        int64_t i = item / per_move, head = item % args->kv_heads;
        char *plane = planes + item % per_move / args->kv_heads * args->plane_stride * element;
        int64_t from = head_at(args->from_base, args->from_cap, i, head, head_dim),
                to = head_at(args->to_base, args->to_cap, i, head, head_dim);
        memmove(plane + (to + args->to[i] * head_dim) * element,
                plane + (from + args->from[i] * head_dim) * element,
                (size_t)(args->len[i] * head_dim * element));
    }
}
