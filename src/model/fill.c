/* Quantises rows and hands them to the backend, by several threads where that is worth it (fill.h).
 */
#include "model/fill.h"

#include <stdatomic.h>

#include "backend/quantiser.h"
#include "backend/threads.h"
#include "port.h"
#include "status.h"

enum {
    WORTH_THREADS = 1 << 25, /* bytes of files */
    THREADS_MAX = 16,        /* more would wait for the reading */
    GRAIN = 32               /* rows that a thread takes at a time: half a panel of the CPU's */
};

struct sb_filler {
    struct sb_mem mem;
    const struct sb_backend *backend;
    struct sb_device *device;
    struct sb_threads *threads;
    sb_quantise_fn quantise;
};

int32_t sb_filler_create(struct sb_filler **out, const struct sb_mem *mem,
                         const struct sb_backend *backend, struct sb_device *device, uint64_t bytes)
{
    const int32_t processors = sb_port_n_processors();
    int32_t n_threads = processors < THREADS_MAX ? processors : THREADS_MAX;
    struct sb_filler *filler = NULL;
    int32_t rc = SPECBATCH_OK;

    if (bytes < WORTH_THREADS || !backend->fills_in_parallel)
        n_threads = 1;
    SB_NEW(filler, sb_alloc(mem, 1, sizeof *filler), "weights");
    *filler = (struct sb_filler){.mem = *mem, .backend = backend, .device = device};
    filler->quantise = sb_quantiser();
    SB_TRY(sb_threads_create(&filler->threads, mem, n_threads));
    *out = filler;
    filler = NULL;
done:
    sb_filler_free(filler);
    return rc;
}

void sb_filler_free(struct sb_filler *filler)
{
    struct sb_mem mem;

    if (!filler)
        return;
    mem = filler->mem;
    sb_threads_free(filler->threads);
    sb_free(&mem, filler);
}

/* One call of sb_filler_fill, as its threads see it. */
struct work {
    const struct sb_filler *filler;
    const struct sb_filling *filling;
    int32_t first;
    const char *rows;
    char *made;
    atomic_int rc; /* of whichever range failed */
};

static int is_quantised_here(const struct sb_filling *filling)
{
    return filling->given != filling->stored;
}

size_t sb_filling_bytes(const struct sb_filling *filling)
{
    return is_quantised_here(filling)
               ? sb_dtype_row_bytes(filling->given, (size_t)filling->weight->n_in)
               : 0;
}

static void fill_range(void *ctx, int64_t first, int64_t last)
{
    struct work *work = ctx;
    const struct sb_filler *filler = work->filler;
    const struct sb_filling *filling = work->filling;
    const size_t n_in = (size_t)filling->weight->n_in;
    const size_t stored = sb_dtype_row_bytes(filling->stored, n_in);
    const size_t given = sb_dtype_row_bytes(filling->given, n_in);
    const char *rows = work->rows + (size_t)first * stored;
    int32_t rc;

    if (is_quantised_here(filling)) {
        char *made = work->made + (size_t)first * given;
        filler->quantise(made, filling->given, rows, filling->stored, (size_t)(last - first), n_in);
        rows = made;
    }
    rc = filler->backend->weight_fill(filling->weight, filler->device, work->first + (int32_t)first,
                                      (int32_t)(last - first), rows, filling->given);
    if (rc != SPECBATCH_OK)
        atomic_store(&work->rc, rc);
}

int32_t sb_filler_fill(struct sb_filler *filler, const struct sb_filling *filling, int32_t first,
                       int32_t n, const char *rows, char *made)
{
    struct work work = {
        .filler = filler, .filling = filling, .first = first, .rows = rows, .made = made};
    int32_t rc;

    atomic_init(&work.rc, SPECBATCH_OK);
    if (!filler->backend->fills_in_parallel) {
        fill_range(&work, 0, n);
        return atomic_load(&work.rc);
    }
    sb_threads_for(filler->threads, n, GRAIN, fill_range, &work);
    rc = atomic_load(&work.rc);
    return rc == SPECBATCH_OK
               ? rc
               : sb_fail(rc, "%s rows were refused by a weight held as %s",
                         sb_dtype_name(filling->given), sb_dtype_name(filling->weight->dtype));
}
