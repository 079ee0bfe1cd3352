/*
 * What the simulator counts of launches (test/cudasim/counts.h) is right for kernels whose counts
 * can be worked out by hand.
 */
#include "counts.h"

#include "cudasim.h"

#include "cuda/kernel_test.h"

enum { OTHER, WEIGHTS };

cudaError_t cudasim_fault_kernel(const char *name, float *memory, float *out, unsigned blocks,
                                 unsigned threads, size_t shared, cudaStream_t stream);

/* The launch that was counted; an empty one if it is not the only one or has failed. */
static const struct cudasim_launch *only_launch(cudaError_t error)
{
    static const struct cudasim_launch none;
    const struct cudasim_launch *launches;

    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    return error == cudaSuccess && cudasim_counted(&launches) == 1 ? launches : &none;
}

/* A product of m rows by a weight [n_out, k], counted. */
static const struct cudasim_launch *product(int m, int n_out, int k)
{
    uint16_t *w = fresh((size_t)n_out * (size_t)k * 2), *x = fresh((size_t)m * (size_t)k * 2);
    float *y = fresh((size_t)m * (size_t)n_out * 4);

    cudasim_label(w, (size_t)n_out * (size_t)k * 2, WEIGHTS);
    cudasim_count(CUDASIM_COUNT_SAMPLE);
    return only_launch(
        sb_cuda_gemm_mma(y, x, w, SB_BF16, NULL, m, n_out, k, 0, product_limits(SB_BF16), stream));
}

/* Every byte of the weight comes once, and x once for each block. */
static void test_product(void)
{
    enum { M = 4, OUT = 256, K = 512 };
    const struct cudasim_launch *l = product(M, OUT, K);
    const struct cudasim_traffic *w = &l->of[WEIGHTS], *other = &l->of[OTHER];

    CHECK_INT((int)l->ran, (int)l->blocks);
    CHECK_INT((int)l->busy, (int)l->blocks);
    CHECK_INT((int)w->read, OUT * K * 2);
    CHECK_INT((int)w->copied, OUT * K * 2);
    CHECK_INT((int)w->sectors_read, OUT * K * 2 / CUDASIM_SECTOR);
    CHECK_INT((int)w->block_sectors, OUT * K * 2 / CUDASIM_SECTOR);
    CHECK_INT((int)w->written, 0);
    CHECK_INT((int)other->read, M * K * 2 * (int)l->blocks);
    CHECK_INT((int)other->sectors_read, M * K * 2 / CUDASIM_SECTOR);
    CHECK_INT((int)other->block_sectors, M * K * 2 / CUDASIM_SECTOR * (int)l->blocks);
    CHECK_INT((int)other->written, M * OUT * 4);
    CHECK_INT((int)other->sectors_written, M * OUT * 4 / CUDASIM_SECTOR);
    /* a step of 16 along k waits for the one before, however the block is made */
    CHECK_INT((int)l->mma_steps, K / 16);
    free_all();
}

/* Counts of a sample of the blocks are scaled to those of all. */
static void test_sample(void)
{
    enum { M = 4, OUT = 1 << 17, K = 128 };
    const struct cudasim_launch *l = product(M, OUT, K);
    const struct cudasim_traffic *w = &l->of[WEIGHTS], *other = &l->of[OTHER];

    CHECK(l->ran < l->blocks);
    CHECK_INT((int)l->busy, (int)l->blocks);
    CHECK_INT((int)w->read, OUT * K * 2);
    CHECK_INT((int)w->sectors_read, OUT * K * 2 / CUDASIM_SECTOR);
    CHECK_INT((int)other->sectors_read, M * K * 2 / CUDASIM_SECTOR);
    CHECK_INT((int)other->written, M * OUT * 4);
    free_all();
}

/* Of blocks with many accesses a few are enough, and x is still known to be shared by all. */
static void test_sample_of_large_blocks(void)
{
    enum { M = 64, OUT = 1 << 15, K = 1 << 12 };
    const struct cudasim_launch *l = product(M, OUT, K);
    const struct cudasim_traffic *w = &l->of[WEIGHTS], *other = &l->of[OTHER];

    CHECK(l->ran < l->blocks / 2);
    CHECK_INT((int)w->sectors_read, OUT * K * 2 / CUDASIM_SECTOR);
    CHECK_INT((int)other->sectors_read, M * K * 2 / CUDASIM_SECTOR);
    CHECK_INT((int)other->written, M * OUT * 4);
    free_all();
}

/* The same where two blocks that follow each other have two tiles of x and the same weights. */
static void test_sample_of_two_tiles(void)
{
    enum { M = 384, OUT = 24576, K = 512 };
    const struct cudasim_launch *l = product(M, OUT, K);
    const struct cudasim_traffic *w = &l->of[WEIGHTS], *other = &l->of[OTHER];

    CHECK(l->ran < l->blocks);
    CHECK_INT((int)l->busy, (int)l->blocks);
    CHECK_INT((int)w->read, 2 * OUT * K * 2); /* once for each tile of x, of 192 rows */
    CHECK_INT((int)w->sectors_read, OUT * K * 2 / CUDASIM_SECTOR);
    CHECK_INT((int)other->sectors_read, M * K * 2 / CUDASIM_SECTOR);
    CHECK_INT((int)other->written, M * OUT * 4);
    free_all();
}

/* A thread loads gate and up together, and waits once. */
static void test_rounds(void)
{
    enum { M = 3, N = 256 };
    float *gate_up = fresh((size_t)M * 2 * N * 4);
    uint16_t *y = fresh((size_t)M * N * 2);

    cudasim_count(CUDASIM_COUNT_SAMPLE);
    const struct cudasim_launch *l = only_launch(
        sb_cuda_gate(y, SB_BF16, gate_up, SB_GATE_SILU, M, N, stream));
    CHECK_INT((int)l->rounds, 1);
    CHECK_INT((int)l->loads, 2);
    CHECK_INT((int)l->mma, 0);
    CHECK_INT((int)l->of[OTHER].read, M * 2 * N * 4);
    CHECK_INT((int)l->of[OTHER].copied, 0);
    CHECK_INT((int)l->of[OTHER].written, M * N * 2);
    free_all();
}

/* An embedding reads where its id is before it waits for the kernel before it. */
static void test_early_rounds(void)
{
    enum { N = 64 };
    const int32_t zero = 0;
    const struct sb_pass pass = {.n_tokens = 1, .ids = given(&zero, 4), .id_at = given(&zero, 4)};
    float *x = fresh(N * 4), *table = fresh(N * 4);
    const struct cudasim_launch *l;

    cudasim_count(CUDASIM_COUNT_SAMPLE);
    for (int i = 0; i < 2; i++)
        CHECK_CUDA(sb_cuda_embed(x, table, SB_F32, 1, N, 1.0f, &pass, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_INT((int)cudasim_counted(&l), 2);
    CHECK_INT((int)l[0].is_dependent, 0);
    CHECK_INT((int)l[0].early_rounds, 0);
    CHECK_INT((int)l[0].of[OTHER].early_sectors, 0);
    CHECK_INT((int)l[0].rounds, 1);
    CHECK_INT((int)l[1].is_dependent, 1);
    CHECK_INT((int)l[1].early_rounds, 1);
    CHECK_INT((int)l[1].of[OTHER].early_sectors, 1);
    CHECK_INT((int)l[1].rounds, 1);
    free_all();
}

/* No block loads more than once, but each waits for those before it. A launch may have a block for
 * each multiprocessor of a real device. */
static void test_phases(void)
{
    enum { BLOCKS = 132, THREADS = 256 };
    float *memory = fresh(THREADS * sizeof *memory);

    cudasim_count(CUDASIM_COUNT_SAMPLE);
    const struct cudasim_launch *l = only_launch(
        cudasim_fault_kernel("one_block_at_a_time", memory, NULL, BLOCKS, THREADS, 0, stream));
    CHECK_INT((int)l->ran, BLOCKS);
    CHECK_INT((int)l->grid_barriers, BLOCKS);
    CHECK_INT((int)l->rounds, BLOCKS);
    CHECK_INT((int)l->loads, BLOCKS);
    CHECK_INT((int)l->barriers, 2 * BLOCKS);
    free_all();
}

/* Where nothing is to be counted, launches succeed and leave memory alone. */
static void test_nothing(void)
{
    const struct cudasim_launch *launches;
    float *gate_up = fresh((size_t)2 * 64 * 4);
    uint16_t *y = given((const uint16_t[64]){7, 7, 7}, 128), got[64];

    cudasim_count(CUDASIM_COUNT_NOTHING);
    CHECK_CUDA(sb_cuda_gate(y, SB_BF16, gate_up, SB_GATE_SILU, 1, 64, stream));
    CHECK_CUDA(fetch(got, y, sizeof got));
    CHECK_INT(got[2], 7);
    CHECK_INT((int)cudasim_counted(&launches), 0);
    cudasim_count(CUDASIM_COUNT_OFF);
    CHECK_CUDA(sb_cuda_gate(y, SB_BF16, gate_up, SB_GATE_SILU, 1, 64, stream));
    CHECK_CUDA(fetch(got, y, sizeof got));
    CHECK_INT(got[2], 0);
    CHECK_INT((int)cudasim_counted(&launches), 0);
    free_all();
}

TEST_BEGIN
const struct cudasim_machine machine = {1, 13000, 9, 0, 132, (size_t)1 << 30, 0};
cudasim_count(CUDASIM_COUNT_NOTHING);
cudasim_configure(&machine);
if (!device_begin())
    return 2;
RUN(test_product);
RUN(test_sample);
RUN(test_sample_of_large_blocks);
RUN(test_sample_of_two_tiles);
RUN(test_rounds);
RUN(test_early_rounds);
RUN(test_phases);
RUN(test_nothing);
device_end();
TEST_END
