/* Growing arrays of bytes and ids: sb_grow (alloc.h) with the messages of both. */
#include "bytes.h"

#include <string.h>

#include "status.h"

int32_t sb_bytes_reserve(struct sb_bytes *bytes, size_t n)
{
    char *grown = NULL, *old = bytes->data;
    size_t need;

    if (n < bytes->capacity) /* the NUL behind them has room too */
        return SPECBATCH_OK;
    if (sb_add_size(n, 1, &need))
        grown = sb_grow_apart(bytes->mem, old, &bytes->capacity, need, 1);
    if (!grown)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for text");
    bytes->data = grown;
    sb_free(bytes->mem, old);
    return SPECBATCH_OK;
}

int32_t sb_bytes_add(struct sb_bytes *bytes, const char *data, size_t n)
{
    size_t need;
    int32_t rc;

    if (!sb_add_size(bytes->n, n, &need))
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for text");
    if ((rc = sb_bytes_reserve(bytes, need)) != SPECBATCH_OK)
        return rc;
    if (n > 0)
        memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    bytes->data[bytes->n] = '\0';
    return SPECBATCH_OK;
}

int32_t sb_bytes_set(struct sb_bytes *bytes, const char *data, size_t n)
{
    bytes->n = 0;
    return sb_bytes_add(bytes, data, n);
}

int32_t sb_ids_add(struct sb_ids *ids, int32_t id)
{
    int32_t *grown = sb_grow(ids->mem, ids->data, &ids->capacity, ids->n + 1, sizeof *grown);

    if (!grown)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for tokens");
    ids->data = grown;
    ids->data[ids->n++] = id;
    return SPECBATCH_OK;
}

void sb_bytes_clear(struct sb_bytes *bytes)
{
    if (bytes->mem)
        sb_free(bytes->mem, bytes->data);
    bytes->data = NULL;
    bytes->n = bytes->capacity = 0;
}

void sb_ids_clear(struct sb_ids *ids)
{
    if (ids->mem)
        sb_free(ids->mem, ids->data);
    ids->data = NULL;
    ids->n = ids->capacity = 0;
}
