/* Lists of moves; moves.h draws one. */
#include "engine/moves.h"

#include "status.h"

static size_t list_bytes(int32_t n)
{
    return (size_t)n * (2 * sizeof(int64_t) + 5 * sizeof(int32_t));
}

size_t sb_moves_bytes(int32_t most)
{
    return 2 * list_bytes(most);
}

int32_t sb_moves_create(struct sb_moves *m, const struct sb_mem *mem, struct specbatch_model *model,
                        int32_t most)
{
    m->mem = *mem;
    m->model = model;
    return sb_model_take_memory(model, mem, list_bytes(most), &m->dev, &m->host);
}

void sb_moves_free(struct sb_moves *m)
{
    sb_model_give_memory(m->model, &m->mem, &m->dev, &m->host);
    *m = (struct sb_moves){.model = NULL};
}

void sb_moves_begin(struct sb_moves *m, int32_t n)
{
    m->n = n;
}

void sb_moves_set(struct sb_moves *m, int32_t i, const struct sb_kv *kv, struct sb_place from,
                  struct sb_place to, int32_t len)
{
    const int32_t n = m->n;
    int64_t *base = (int64_t *)(void *)m->host;
    int32_t *rest = (int32_t *)(void *)(base + 2 * n);

    base[i] = sb_kv_base(kv, from.at);
    base[n + i] = sb_kv_base(kv, to.at);
    rest[i] = from.cap;
    rest[n + i] = to.cap;
    rest[2 * n + i] = from.column;
    rest[3 * n + i] = to.column;
    rest[4 * n + i] = len;
}

int32_t sb_moves_run(struct sb_moves *m, struct sb_runner *runner)
{
    const struct sb_backend *be = runner->backend;
    const struct sb_kv *kv = &runner->kv;
    const int32_t n = m->n;
    const int64_t *base = (const int64_t *)(const void *)m->dev;
    const int32_t *rest = (const int32_t *)(const void *)(base + 2 * n);
    int32_t rc = SPECBATCH_OK;

    SB_TRY(be->upload(runner->exec, m->dev, m->host, list_bytes(n)));
    be->move(runner->exec, kv->planes,
             &(struct sb_move){.n = n,
                               .n_planes = 2 * kv->layers,
                               .kv_heads = kv->kv_heads,
                               .head_dim = kv->head_dim,
                               .plane_stride = kv->plane_stride,
                               .from_base = base,
                               .to_base = base + n,
                               .from_cap = rest,
                               .to_cap = rest + n,
                               .from = rest + 2 * n,
                               .to = rest + 3 * n,
                               .len = rest + 4 * n});
    SB_TRY(be->exec_sync(runner->exec));
done:
    return rc;
}
