/* The slabs of weight_memory.h. */
#include "backend/cuda/weight_memory.h"

#include "backend/cuda/memory.h"
#include "status.h"

#define PAGE ((size_t)2 << 20)
#define SLAB_MOST ((size_t)64 << 20)
#define OWN_FROM ((size_t)16 << 20) /* whole pages add at most an eighth to such a weight */
#define ALIGN ((size_t)2 << 10)     /* of places in a slab: the bytes of a tile (launch.h) */

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* The slab with the least room of those that have enough, or NULL. */
static struct sb_slab *find_room(const struct sb_weight_memory *memory, size_t bytes)
{
    struct sb_slab *best = NULL;
    size_t least = SIZE_MAX;

    for (struct sb_slab *slab = memory->slabs; slab; slab = slab->next) {
        const size_t room = slab->bytes - slab->cut;
        if (room >= bytes && room < least) {
            least = room;
            best = slab;
        }
    }
    return best;
}

/* Where the list has the slab that a weight was cut from. NULL there: the weight has an allocation
 * of its own. */
static struct sb_slab **find_slab(struct sb_weight_memory *memory, const void *dev)
{
    struct sb_slab **at = &memory->slabs;

    while (*at && (uintptr_t)dev - (uintptr_t)(*at)->dev >= (*at)->bytes)
        at = &(*at)->next;
    return at;
}

/* A new slab is for a whole number of weights of this size, since most models have many of it. */
static size_t new_slab_bytes(const struct sb_weight_memory *memory, size_t piece)
{
    const size_t quarter = memory->bytes / 4;
    const size_t most = quarter < PAGE ? PAGE : quarter > SLAB_MOST ? SLAB_MOST : quarter;
    const size_t pieces = most / piece;

    return round_up(pieces > 0 ? pieces * piece : piece, PAGE);
}

/* A new slab with room for the piece, or NULL where the device has no memory for it. */
static int32_t add_slab(struct sb_slab **out, struct sb_weight_memory *memory,
                        const struct sb_gpu *gpu, size_t piece)
{
    struct sb_slab *slab = NULL;
    void *dev = NULL;
    cudaError_t error;
    int32_t rc = SPECBATCH_OK;

    *out = NULL;
    SB_NEW(slab, sb_alloc(&gpu->mem, 1, sizeof *slab), "a slab of weights");
    slab->bytes = new_slab_bytes(memory, piece);
    error = cudaMalloc(&dev, slab->bytes);
    if (error == cudaErrorMemoryAllocation) {
        sb_cuda_ignore(error);
        goto done;
    }
    SB_TRY(sb_cuda_status(gpu, error, "a weight", slab->bytes));
    slab->dev = dev;
    slab->next = memory->slabs;
    memory->slabs = *out = slab;
    memory->bytes += slab->bytes;
    slab = NULL;
done:
    sb_free(&gpu->mem, slab);
    return rc;
}

int32_t sb_weight_memory_take(void **out, struct sb_weight_memory *memory, struct sb_gpu *gpu,
                              size_t bytes)
{
    const size_t piece = round_up(bytes > 0 ? bytes : 1, ALIGN);
    struct sb_slab *slab = NULL;
    int32_t rc = SPECBATCH_OK;

    if (piece < OWN_FROM) {
        slab = find_room(memory, piece);
        if (!slab)
            SB_TRY(add_slab(&slab, memory, gpu, piece));
    }
    if (slab) {
        *out = slab->dev + slab->cut;
        slab->cut += piece;
        slab->weights++;
    } else {
        SB_TRY(sb_cuda_status(gpu, cudaMalloc(out, bytes > 0 ? bytes : 1), "a weight", bytes));
    }
    gpu->held += bytes;
done:
    return rc;
}

void sb_weight_memory_give(struct sb_weight_memory *memory, struct sb_gpu *gpu, void *dev,
                           size_t bytes)
{
    struct sb_slab **at = find_slab(memory, dev), *slab = *at;

    gpu->held -= bytes;
    if (!slab) {
        sb_cuda_free(gpu, dev);
        return;
    }
    if (--slab->weights > 0)
        return;
    *at = slab->next;
    sb_cuda_free(gpu, slab->dev);
    memory->bytes -= slab->bytes;
    sb_free(&gpu->mem, slab);
}
