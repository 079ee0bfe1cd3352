/*
 * Operations with a fault, each of which calls the sound backend's own. They read and write device
 * memory, which is ordinary memory on the CPU and on a simulated device. Operations may be pending
 * on a device, so they wait (exec_sync) before they look into its memory and before they free
 * memory that an operation was given.
 */
#include "support/vtable_faults.h"

#include <stdlib.h>
#include <string.h>

static struct sb_backend faulty;
static const struct sb_backend *sound;

static const char *const names[VTABLE_FAULTS] = {
    "none",
    "pads counted in positions",
    "rejected tokens counted in positions",
    "mask hides the own column",
    "mask shows the next column",
    "a pad is attended to",
    "stale KV after a rejection",
    "realignment by the wrong row's offset",
    "one token too many accepted",
};

const char *vtable_fault_name(enum vtable_fault fault)
{
    return names[fault];
}

/* The pass that has only token t of another pass. */
static struct sb_pass only(const struct sb_pass *pass, int32_t t)
{
    struct sb_pass one = *pass;

    one.n_tokens = 1;
    one.id_at += t;
    one.pos += t;
    one.seq += t;
    return one;
}

static int32_t qkv_width(const struct sb_attention *a)
{
    return (a->heads + 2 * a->kv_heads) * a->head_dim;
}

/* Rotates token t of a pass as if its position were `by` larger. */
static void rope_shifted(struct sb_exec *exec, float *qkv, const struct sb_attention *attention,
                         const struct sb_pass *pass, int32_t t, int32_t by)
{
    const struct sb_pass one = only(pass, t);
    struct sb_attention shifted = *attention;

    shifted.cos += (int64_t)by * (attention->rot_dim / 2);
    shifted.sin += (int64_t)by * (attention->rot_dim / 2);
    sound->rope_kv(exec, qkv + (int64_t)t * qkv_width(attention), &shifted, &one);
}

static void pads_in_positions(struct sb_exec *exec, float *qkv,
                              const struct sb_attention *attention, const struct sb_pass *pass)
{
    (void)sound->exec_sync(exec);
    for (int32_t t = 0; t < pass->n_tokens; t++)
        rope_shifted(exec, qkv, attention, pass, t, pass->start[pass->seq[t]]);
}

/* What masked_in_positions remembers of one sequence in one plane of the cache: the position after
 * its last token, and how many tokens were rejected so far. The memory of a freed plane may come
 * back, so a token at position 0 begins anew. */
struct masked_row {
    const void *plane;
    int64_t base;
    int32_t end, rejected;
};
static struct masked_row masked_rows[4096];

static struct masked_row *masked_row(const void *plane, int64_t base)
{
    enum { N = sizeof masked_rows / sizeof *masked_rows };
    size_t at = ((uintptr_t)plane / 64 * 31 + (uintptr_t)base / 8 * 17) % N;

    for (int i = 0; i < N && masked_rows[at].plane; i++, at = (at + 1) % N)
        if (masked_rows[at].plane == plane && masked_rows[at].base == base)
            break;
    masked_rows[at].plane = plane;
    masked_rows[at].base = base;
    return &masked_rows[at];
}

/* A token at a position that was filled before shows that the tokens from there on were rejected.
 */
static void masked_in_positions(struct sb_exec *exec, float *qkv, const struct sb_attention *a,
                                const struct sb_pass *pass)
{
    (void)sound->exec_sync(exec);
    for (int32_t t = 0; t < pass->n_tokens; t++) {
        const int32_t s = pass->seq[t], pos = pass->pos[t];
        struct masked_row *row = masked_row(a->k, pass->base[s]);
        if (pos == 0)
            row->rejected = 0;
        else if (pos < row->end)
            row->rejected += row->end - pos;
        row->end = pos + 1;
        rope_shifted(exec, qkv, a, pass, t, pos + row->rejected < pass->cap[s] ? row->rejected : 0);
    }
}

/* Writes a token's entry only where its sequence has not written before. For that, the first token
 * of a sequence fills its slot with zeros, and an entry that begins with another number is a
 * written one. */
static void stale_kv(struct sb_exec *exec, float *qkv, const struct sb_attention *a,
                     const struct sb_pass *pass)
{
    float *k = a->k, *v = a->v,
          *kept = malloc(2 * sizeof(float) * (size_t)(a->kv_heads * a->head_dim));

    (void)sound->exec_sync(exec);
    for (int32_t t = 0; t < pass->n_tokens; t++) {
        const struct sb_pass one = only(pass, t);
        const int32_t s = pass->seq[t], hd = a->head_dim;
        int used = 0;
        for (int32_t h = 0; pass->pos[t] == 0 && h < a->kv_heads; h++)
            memset(k + pass->base[s] + (int64_t)h * pass->cap[s] * hd, 0,
                   sizeof(float) * (size_t)(pass->cap[s] * hd));
        for (int32_t h = 0; h < a->kv_heads; h++) {
            const int64_t at = pass->base[s] +
                               ((int64_t)h * pass->cap[s] + pass->start[s] + pass->pos[t]) * hd;
            memcpy(kept + 2 * h * hd, k + at, sizeof(float) * (size_t)hd);
            memcpy(kept + (2 * h + 1) * hd, v + at, sizeof(float) * (size_t)hd);
            used |= k[at] != 0.0f;
        }
        sound->rope_kv(exec, qkv + (int64_t)t * qkv_width(a), a, &one);
        (void)sound->exec_sync(exec);
        for (int32_t h = 0; used && h < a->kv_heads; h++) {
            const int64_t at = pass->base[s] +
                               ((int64_t)h * pass->cap[s] + pass->start[s] + pass->pos[t]) * hd;
            memcpy(k + at, kept + 2 * h * hd, sizeof(float) * (size_t)hd);
            memcpy(v + at, kept + (2 * h + 1) * hd, sizeof(float) * (size_t)hd);
        }
    }
    free(kept);
}

/* Attends with every position changed by `shift`, where that stays inside the slot. */
static void attend_shifted(struct sb_exec *exec, void *y, const float *qkv,
                           const struct sb_attention *a, const struct sb_pass *pass, int32_t shift)
{
    int32_t *pos = malloc(sizeof(int32_t) * (size_t)pass->n_tokens);
    struct sb_pass moved = *pass;

    (void)sound->exec_sync(exec);
    for (int32_t t = 0; t < pass->n_tokens; t++) {
        const int32_t to = pass->pos[t] + shift;
        pos[t] = to < 0 || pass->start[pass->seq[t]] + to >= pass->cap[pass->seq[t]] ? pass->pos[t]
                                                                                     : to;
    }
    moved.pos = pos;
    moved.max_len += shift > 0 ? shift : 0;
    sound->attend(exec, y, qkv, a, &moved);
    (void)sound->exec_sync(exec);
    free(pos);
}

static void mask_one_off(struct sb_exec *exec, void *y, const float *qkv,
                         const struct sb_attention *a, const struct sb_pass *pass)
{
    attend_shifted(exec, y, qkv, a, pass, -1);
}

static void mask_sees_next(struct sb_exec *exec, void *y, const float *qkv,
                           const struct sb_attention *a, const struct sb_pass *pass)
{
    attend_shifted(exec, y, qkv, a, pass, 1);
}

static void pads_attended(struct sb_exec *exec, void *y, const float *qkv,
                          const struct sb_attention *a, const struct sb_pass *pass)
{
    int32_t *start = malloc(sizeof(int32_t) * (size_t)pass->n_seqs);
    int32_t *pos = malloc(sizeof(int32_t) * (size_t)pass->n_tokens);
    struct sb_pass moved = *pass;

    (void)sound->exec_sync(exec);
    for (int32_t s = 0; s < pass->n_seqs; s++)
        start[s] = pass->start[s] > 0 ? pass->start[s] - 1 : 0;
    for (int32_t t = 0; t < pass->n_tokens; t++)
        pos[t] = pass->pos[t] + (pass->start[pass->seq[t]] > 0);
    moved.start = start;
    moved.pos = pos;
    moved.max_len++;
    sound->attend(exec, y, qkv, a, &moved);
    (void)sound->exec_sync(exec);
    free(start);
    free(pos);
}

static void move_wrong_row(struct sb_exec *exec, void *planes, const struct sb_move *moves)
{
    int32_t *to = malloc(sizeof(int32_t) * (size_t)moves->n);
    struct sb_move wrong = *moves;

    (void)sound->exec_sync(exec);
    for (int32_t i = 0; i < moves->n; i++) {
        const int32_t next = (i + 1) % moves->n;
        to[i] = moves->to[next];
        if (to[i] + moves->len[i] > moves->to_cap[i])
            to[i] = moves->to[i];
    }
    wrong.to = to;
    sound->move(exec, planes, &wrong);
    (void)sound->exec_sync(exec);
    free(to);
}

static void accept_one_more(struct sb_exec *exec, const int32_t *tokens, const int32_t *picks,
                            const int32_t *n_draft, int32_t n_rows, int32_t stride,
                            int32_t *n_accept)
{
    sound->accept(exec, tokens, picks, n_draft, n_rows, stride, n_accept);
    (void)sound->exec_sync(exec);
    for (int32_t b = 0; b < n_rows; b++)
        n_accept[b] += n_accept[b] < n_draft[b];
}

const struct sb_backend *vtable_with_fault(const struct sb_backend *backend,
                                           enum vtable_fault fault)
{
    memset(masked_rows, 0, sizeof masked_rows);
    sound = backend;
    faulty = *backend;
    faulty.records = 0; /* a replayed round would not call the functions above */
    switch (fault) {
    case VTABLE_PADS_IN_POSITIONS:
        faulty.rope_kv = pads_in_positions;
        break;
    case VTABLE_MASKED_IN_POSITIONS:
        faulty.rope_kv = masked_in_positions;
        break;
    case VTABLE_MASK_ONE_OFF:
        faulty.attend = mask_one_off;
        break;
    case VTABLE_MASK_SEES_NEXT:
        faulty.attend = mask_sees_next;
        break;
    case VTABLE_PADS_ATTENDED:
        faulty.attend = pads_attended;
        break;
    case VTABLE_STALE_KV:
        faulty.rope_kv = stale_kv;
        break;
    case VTABLE_REALIGN_WRONG_ROW:
        faulty.move = move_wrong_row;
        break;
    case VTABLE_ACCEPT_ONE_MORE:
        faulty.accept = accept_one_more;
        break;
    default:
        break;
    }
    return &faulty;
}
