/* Quantises rows and hands them to the backend, by several threads where that is worth it (fill.h).
 */
#include "model/fill.h"

#include <stdatomic.h>

#include "backend/quantiser.h"
#include "backend/threads.h"
#include "port.h"
#include "status.h"

enum {
    WORTH_THREADS = 1 << 23, /* bytes of files */
    THREADS_MAX = 16,        /* more would wait for the reading */
    GRAIN = 32               /* rows of a unit: half a panel of the CPU's */
};
_Static_assert(GRAIN % SB_FILL_UNIT == 0, "units are cut where weight_fill allows it");

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

    if (bytes < WORTH_THREADS)
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

/* One call of sb_filler_fill, as its threads see it. The message of a failure belongs to the thread
 * that had it, so the first unit that fails leaves a copy for the caller. */
struct work {
    const struct sb_filler *filler;
    const struct sb_filling *filling;
    sb_read_fn read;
    void *ctx;
    atomic_flag has_failed;
    int32_t rc;
    char message[SPECBATCH_ERROR_MAX];
};

/* Fills in rows first .. last - 1 of those that there are. */
static int32_t fill_rows(const struct work *work, int32_t first, int32_t last)
{
    const struct sb_filler *filler = work->filler;
    const struct sb_filling *filling = work->filling;
    const size_t n_in = (size_t)filling->weight->n_in, n = (size_t)(last - first);
    const char *rows = filling->rows + (size_t)first * sb_dtype_row_bytes(filling->stored, n_in);

    if (is_quantised_here(filling)) {
        char *made = filling->made + (size_t)first * sb_dtype_row_bytes(filling->given, n_in);
        filler->quantise(made, filling->given, rows, filling->stored, n, n_in);
        rows = made;
    }
    return filler->backend->weight_fill(filling->weight, filler->device, filling->first + first,
                                        (int32_t)n, rows, filling->given);
}

/* Units are cut at multiples of GRAIN of the weight's own rows: how many rows the first unit has
 * before those that there are. */
static int32_t rows_before(const struct sb_filling *filling)
{
    return filling->first % GRAIN;
}

/* Fills in unit i of the rows. */
static int32_t fill_unit(const struct work *work, int64_t i)
{
    const int64_t row = i * GRAIN - rows_before(work->filling), end = row + GRAIN,
                  n = work->filling->n;

    return fill_rows(work, (int32_t)(row > 0 ? row : 0), (int32_t)(end < n ? end : n));
}

/* Unit 0 is the reading. The others are rows. */
static void run_units(void *ctx, int64_t first, int64_t last)
{
    struct work *work = ctx;

    for (int64_t unit = first; unit < last; unit++) {
        int32_t rc = SPECBATCH_OK;
        if (unit > 0)
            rc = fill_unit(work, unit - 1);
        else if (work->read)
            rc = work->read(work->ctx);
        if (rc != SPECBATCH_OK && !atomic_flag_test_and_set(&work->has_failed)) {
            work->rc = rc;
            sb_error_copy(work->message);
        }
    }
}

int32_t sb_filler_fill(struct sb_filler *filler, const struct sb_filling *filling, sb_read_fn read,
                       void *ctx)
{
    struct work work = {.filler = filler,
                        .filling = filling,
                        .read = read,
                        .ctx = ctx,
                        .has_failed = ATOMIC_FLAG_INIT};
    const int64_t rows = (int64_t)rows_before(filling) + filling->n;

    sb_threads_for(filler->threads, 1 + (filling->n > 0 ? (rows + GRAIN - 1) / GRAIN : 0), 1,
                   run_units, &work);
    if (work.rc != SPECBATCH_OK)
        sb_error_restore(work.message);
    return work.rc;
}
