/* Saving and loading sessions; session.h says why a file is read twice. */
#include "pool/session.h"

#include <stdio.h>
#include <string.h>

#include "fault.h"
#include "pool/session_file.h"
#include "status.h"

_Static_assert(sizeof((struct specbatch_model *)0)->fingerprint == SB_FINGERPRINT,
               "a fingerprint fits in a session file");

/* Room for the columns of one block in both caches, in memory that the device copies from and to,
 * laid out as in the file: the target's, and behind them the draft's. */
struct buffer {
    char *bytes;
    size_t target, draft; /* bytes of each; draft: 0 if the draft has no cache */
};

static size_t block_bytes(const struct sb_runner *cache)
{
    return SB_PREFIX_BLOCK * sb_kv_column_bytes(&cache->kv);
}

static int32_t create_buffer(struct buffer *buffer, const struct specbatch_pool *pool)
{
    const struct sb_prefix *prefix = &pool->prefix;
    const struct sb_backend *be = prefix->target->backend;
    void *bytes;
    int32_t rc;

    buffer->target = block_bytes(prefix->target);
    buffer->draft = prefix->draft ? block_bytes(prefix->draft) : 0;
    rc = be->host_alloc(&bytes, pool->target->device, &pool->mem, buffer->target + buffer->draft);
    buffer->bytes = rc == SPECBATCH_OK ? bytes : NULL;
    return rc;
}

static void free_buffer(struct buffer *buffer, const struct specbatch_pool *pool)
{
    if (buffer->bytes)
        pool->target->backend->host_free(pool->target->device, &pool->mem, buffer->bytes);
}

/* Issues the copies of a block of one cache between `host` and the device. */
static int32_t copy_block(const struct sb_prefix *prefix, const struct sb_runner *cache,
                          int32_t block, char *host, int to_device)
{
    const struct sb_backend *be = cache->backend;
    const struct sb_kv *kv = &cache->kv;
    const size_t plane = block_bytes(cache) / (size_t)(2 * kv->layers);
    const size_t begin = (size_t)sb_kv_base(kv, sb_prefix_at(prefix, block)) * kv->element_bytes;
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < 2 * kv->layers; i++, host += plane) {
        char *dev = (char *)(i % 2 ? sb_kv_v(kv, i / 2) : sb_kv_k(kv, i / 2)) + begin;
        SB_TRY(to_device ? be->upload(cache->exec, dev, host, plane)
                         : be->download(cache->exec, host, dev, plane));
    }
done:
    return rc;
}

static struct sb_session_model describe(const struct sb_runner *cache)
{
    struct sb_session_model model = {.layers = cache->kv.layers,
                                     .kv_heads = cache->kv.kv_heads,
                                     .head_dim = cache->kv.head_dim,
                                     .element_bytes = (int32_t)cache->kv.element_bytes};

    memcpy(model.digest, cache->model->digest, sizeof model.digest);
    memcpy(model.fingerprint, cache->model->fingerprint, sizeof model.fingerprint);
    return model;
}

/* ----------------------------------------------------------------------------- saving */

static int32_t check_save(const struct specbatch_pool *pool, const int32_t *ids, size_t n_ids)
{
    if (sb_prefix_n_blocks(&pool->prefix) == 0)
        return sb_fail(SPECBATCH_E_INVALID, "the pool was created without prefix_bytes");
    if (n_ids == 0)
        return sb_fail(SPECBATCH_E_INVALID, "a session without ids");
    if (n_ids > (size_t)pool->target->config.context)
        return sb_fail(SPECBATCH_E_TOO_LONG, "%zu ids, the model's context is %d", n_ids,
                       (int)pool->target->config.context);
    return sb_pool_check_ids(pool, ids, n_ids, "id");
}

static int32_t save_blocks(struct specbatch_pool *pool, struct sb_checked_out *out,
                           const struct sb_session_head *head, const struct buffer *buffer)
{
    const struct sb_prefix *prefix = &pool->prefix;
    const struct sb_runner *target = prefix->target;
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < head->n_blocks; i++) {
        const int32_t block = prefix->tree.path[i], drafted = i < head->n_drafted;
        SB_TRY(copy_block(prefix, target, block, buffer->bytes, 0));
        if (drafted)
            SB_TRY(copy_block(prefix, prefix->draft, block, buffer->bytes + buffer->target, 0));
        SB_TRY(target->backend->exec_sync(target->exec));
        SB_TRY(sb_session_write_block(out, buffer->bytes,
                                      buffer->target + (drafted ? buffer->draft : 0)));
    }
done:
    return rc;
}

int32_t sb_session_save(struct specbatch_pool *pool, const int32_t *ids, size_t n_ids,
                        const char *path, size_t *n_kept)
{
    struct sb_prefix *prefix = &pool->prefix;
    struct sb_checked_out out = {.file = {.fd = -1}};
    struct sb_session_head head = {.block_columns = SB_PREFIX_BLOCK, .n_ids = (int32_t)n_ids};
    struct buffer buffer = {NULL, 0, 0};
    int32_t rc = check_save(pool, ids, n_ids);

    if (rc != SPECBATCH_OK)
        return rc;
    head.span = prefix->target->limits.span;
    head.n_blocks = sb_prefix_open_longest(prefix, ids, head.n_ids, &head.n_spanned);
    head.n_drafted = sb_prefix_n_drafted(&prefix->tree);
    head.target = describe(prefix->target);
    if (head.n_drafted > 0)
        head.draft = describe(prefix->draft);
    SB_TRY(create_buffer(&buffer, pool));
    SB_TRY(sb_session_create(&out, path, &head, ids));
    SB_TRY(save_blocks(pool, &out, &head, &buffer));
    SB_TRY(sb_new_file_keep(&out.file));
    if (n_kept)
        *n_kept = (size_t)head.n_blocks * SB_PREFIX_BLOCK;
done:
    sb_new_file_drop(&out.file);
    free_buffer(&buffer, pool);
    sb_prefix_close(&prefix->tree);
    return sb_pool_end_if_fatal(pool, sb_file_fail(rc, path));
}

/* ---------------------------------------------------------------------------- loading */

static int same_shape(const struct sb_session_model *a, const struct sb_session_model *b)
{
    return a->layers == b->layers && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
           a->element_bytes == b->element_bytes;
}

/* Whether the pool's target can take the columns of the file. */
static int32_t check_target(const struct specbatch_pool *pool, const struct sb_session_in *in)
{
    const struct sb_session_model ours = describe(&pool->runner), *theirs = &in->head.target;
    const char *name = in->from.file.name;

    if (in->head.block_columns != SB_PREFIX_BLOCK)
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "%.60s: blocks of %d tokens, not of %d", name,
                       (int)in->head.block_columns, SB_PREFIX_BLOCK);
    if (strcmp(theirs->digest, ours.digest) != 0)
        return sb_fail(SPECBATCH_E_INVALID,
                       "%.60s: a session of another model: its digest is %s, not %s", name,
                       theirs->digest, ours.digest);
    if (strcmp(theirs->fingerprint, ours.fingerprint) != 0 && !SB_FAULT(SESSION_OF_ANY_CLASS))
        return sb_fail(SPECBATCH_E_INVALID, "%.60s: a session of another numerics class: %.100s",
                       name, theirs->fingerprint);
    if (!same_shape(theirs, &ours) || in->head.span != pool->runner.limits.span)
        return sb_fail(SPECBATCH_E_INVALID, "%.60s: a session of caches of another shape", name);
    if (in->head.n_ids > pool->target->config.context)
        return sb_fail(SPECBATCH_E_FORMAT, "%.60s: %d ids, the model's context is %d", name,
                       (int)in->head.n_ids, (int)pool->target->config.context);
    return SPECBATCH_OK;
}

/* Whether the pool's draft can take the draft's columns. A draft of another kind goes without. */
static int takes_draft(const struct specbatch_pool *pool, const struct sb_session_head *head)
{
    struct sb_session_model ours;

    if (!pool->prefix.draft || head->n_drafted == 0)
        return 0;
    ours = describe(pool->prefix.draft);
    return strcmp(ours.digest, head->draft.digest) == 0 &&
           strcmp(ours.fingerprint, head->draft.fingerprint) == 0 &&
           same_shape(&ours, &head->draft);
}

/* A file that is loaded into a pool. */
struct loading {
    struct sb_session_in in;
    struct buffer buffer;
    int takes_draft;
};

/* Reads block i into the buffer; the columns of a draft that does not take them are only checked.
 */
static int32_t read_block(struct loading *l, int32_t i)
{
    struct sb_session_in *in = &l->in;
    size_t unwanted = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_checked_read(&in->from, l->buffer.bytes, l->buffer.target));
    if (i < in->head.n_drafted && l->takes_draft)
        SB_TRY(sb_checked_read(&in->from, l->buffer.bytes + l->buffer.target, l->buffer.draft));
    else if (i < in->head.n_drafted &&
             sb_session_block_bytes(&in->head, &in->head.draft, &unwanted))
        SB_TRY(sb_session_skip(in, unwanted));
    SB_TRY(sb_checked_read_check(&in->from));
done:
    return rc;
}

/* Copies what the buffer has of block i of the open path to its node, as far as that lacks it. */
static int32_t fill_node(struct specbatch_pool *pool, const struct loading *l, int32_t i)
{
    const struct sb_prefix *prefix = &pool->prefix;
    const struct sb_runner *target = prefix->target;
    const int32_t block = prefix->tree.path[i];
    struct sb_prefix_node *node = &prefix->tree.nodes[block];
    const int fill = !node->filled;
    const int draft = !node->drafted && l->takes_draft && i < l->in.head.n_drafted;
    int32_t rc = SPECBATCH_OK;

    if (fill)
        SB_TRY(copy_block(prefix, target, block, l->buffer.bytes, 1));
    if (draft)
        SB_TRY(copy_block(prefix, prefix->draft, block, l->buffer.bytes + l->buffer.target, 1));
    SB_TRY(target->backend->exec_sync(target->exec));
    node->filled = 1;
    node->drafted |= draft;
    pool->stats[SB_STAT_prefix_blocks] += (uint64_t)fill;
done:
    return rc;
}

/* The second reading: puts as many blocks into the cache as it has room for. */
static int32_t fill_blocks(struct specbatch_pool *pool, struct loading *l, const int32_t *ids)
{
    const struct sb_session_head *head = &l->in.head;
    struct sb_prefix_tree *tree = &pool->prefix.tree;
    int32_t n, rc = SPECBATCH_OK;

    sb_prefix_open(tree, ids, head->n_blocks, head->n_spanned);
    n = sb_prefix_extend(tree, ids, head->n_blocks, head->n_spanned);
    for (int32_t i = 0; i < n; i++) {
        SB_TRY(read_block(l, i));
        SB_TRY(fill_node(pool, l, i));
    }
done:
    sb_prefix_close(tree);
    pool->stats[SB_STAT_prefix_evictions] = tree->n_evicted;
    return rc;
}

/* Loads an open file, of which so far only the head was read. */
static int32_t load(struct specbatch_pool *pool, struct loading *l, int32_t *ids)
{
    const int32_t n_ids = l->in.head.n_ids;
    struct sb_session_in blocks;
    int32_t *own = NULL, rc = SPECBATCH_OK;

    SB_NEW(own, sb_alloc_raw(&pool->mem, (size_t)n_ids, sizeof *own), "a session's ids");
    SB_TRY(create_buffer(&l->buffer, pool));
    SB_TRY(sb_session_read_ids(&l->in, own));
    if (sb_pool_check_ids(pool, own, (size_t)n_ids, "id") != SPECBATCH_OK) {
        rc = sb_fail_in(SPECBATCH_E_FORMAT, l->in.from.file.name);
        goto done;
    }
    blocks = l->in;
    for (int32_t i = 0; i < l->in.head.n_blocks; i++)
        SB_TRY(read_block(l, i));
    l->in = blocks;
    SB_TRY(fill_blocks(pool, l, own));
    memcpy(ids, own, (size_t)n_ids * sizeof *ids);
done:
    free_buffer(&l->buffer, pool);
    sb_free(&pool->mem, own);
    return rc;
}

int32_t sb_session_load(struct specbatch_pool *pool, const char *path, int32_t *ids,
                        size_t capacity, size_t *n)
{
    struct loading l = {.in = {.from = {.file = {.fd = -1}}}};
    int32_t rc = SPECBATCH_OK;
    size_t n_ids;

    if (sb_prefix_n_blocks(&pool->prefix) == 0)
        return sb_fail(SPECBATCH_E_INVALID, "the pool was created without prefix_bytes");
    SB_TRY(sb_session_open(&l.in, path));
    SB_TRY(check_target(pool, &l.in));
    n_ids = (size_t)l.in.head.n_ids;
    if (ids && capacity < n_ids) {
        *n = n_ids;
        SB_FAIL(SPECBATCH_E_BUFFER, "%.100s: the buffer holds %zu ids, %zu are needed",
                l.in.from.file.name, capacity, n_ids);
    }
    l.takes_draft = takes_draft(pool, &l.in.head);
    if (ids)
        SB_TRY(load(pool, &l, ids));
    *n = n_ids;
done:
    sb_session_close(&l.in);
    return sb_pool_end_if_fatal(pool, sb_file_fail(rc, path));
}
