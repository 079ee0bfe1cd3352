/*
 * Who makes products of many rows, on the simulated device with its wgmma and its cuBLASLt.
 * Whatever these do, the bits are those of the kernel by mma.sync. The tests count their products,
 * so that a backend which never asks them does not pass.
 */
#include "cudasim.h"

#include "backend/cuda/device.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/gemm_plan.h"
#include "backend/cuda/memory.h"
#include "kernels/cuda/launch.h"
#include "sbtest.h"
#include "status.h"
#include "support/failalloc.h"
#include "support/model_files.h"

enum { OUTS = 24, INS = 40, MOST = 257 };

struct lab {
    struct sb_mem mem;
    struct sb_device *device;
    struct sb_weight weight;
    void *x;        /* dev [MOST, ld] */
    void *scratch;  /* dev, of cuBLASLt's products */
    float *y, *own; /* dev [MOST, OUTS] */
    int warnings;
};

static void count_warnings(void *user, int32_t level, const char *line)
{
    (void)line;
    *(int *)user += level <= SPECBATCH_LOG_WARN;
}

/* Makes a weight and inputs of small numbers, in which all bits of a bf16 occur. */
static int32_t open_lab_with(struct lab *lab, const char *plan_file)
{
    const size_t ld = (size_t)sb_cuda_ld(SB_BF16, INS);
    const struct sb_log log = {count_warnings, &lab->warnings};
    const struct sb_device_options options = {
        .compute = SPECBATCH_COMPUTE_BF16, .log = &log, .plan_file = plan_file};
    float rows[OUTS * INS];
    void *dev;
    int32_t rc = SPECBATCH_OK;

    *lab = (struct lab){.weight = {.n_out = OUTS, .n_in = INS}};
    for (int i = 0; i < OUTS * INS; i++)
        rows[i] = (float)(i * 7919 % 1009 - 504) / 256.0f;
    SB_TRY(sb_cuda_device_open(&lab->device, &lab->mem, &options));
    SB_TRY(sb_cuda_weight_create(&lab->weight, lab->device, &lab->mem, SB_BF16));
    SB_TRY(sb_cuda_weight_fill(&lab->weight, lab->device, 0, OUTS, rows, SB_F32));
    SB_TRY(sb_staging_finish(&lab->device->staging, &lab->device->gpu));
    SB_TRY(sb_cuda_alloc(&lab->x, &lab->device->gpu, MOST * ld * 2));
    for (int r = 0; r < MOST; r++) {
        uint16_t row[INS];
        for (int k = 0; k < INS; k++)
            rows[k] = (float)((int64_t)(r * INS + k) * 104729 % 2003 - 1001) /
                      (float)(1 << (k % 11));
        sb_convert(row, SB_BF16, rows, SB_F32, INS);
        SB_TRY(sb_cuda_upload(NULL, (char *)lab->x + (size_t)r * ld * 2, row, sizeof row));
    }
    SB_TRY(
        sb_cuda_alloc(&lab->scratch, &lab->device->gpu, sb_gemm_scratch(lab->device->gemm, MOST)));
    SB_TRY(sb_cuda_alloc(&dev, &lab->device->gpu, MOST * OUTS * sizeof(float)));
    lab->y = dev;
    SB_TRY(sb_cuda_alloc(&dev, &lab->device->gpu, MOST * OUTS * sizeof(float)));
    lab->own = dev;
    SB_TRY(sb_cuda_status(&lab->device->gpu,
                          sb_cuda_gemm_mma(lab->own, lab->x, lab->weight.data, SB_BF16, NULL, MOST,
                                           OUTS, INS, 0, &lab->device->gpu.limits,
                                           lab->device->gpu.load),
                          "a product", 0));
done:
    return rc;
}

static int32_t open_lab(struct lab *lab)
{
    return open_lab_with(lab, NULL);
}

static void close_lab(struct lab *lab)
{
    if (!lab->device)
        return;
    sb_cuda_free(&lab->device->gpu, lab->x);
    sb_cuda_free(&lab->device->gpu, lab->scratch);
    sb_cuda_free(&lab->device->gpu, lab->y);
    sb_cuda_free(&lab->device->gpu, lab->own);
    sb_cuda_weight_free(&lab->weight, lab->device, &lab->mem);
    sb_cuda_device_close(lab->device);
    cudasim_break_blas(CUDASIM_BLAS_SOUND, 0);
    cudasim_break_wgmma(CUDASIM_WGMMA_SOUND, 0);
}

static struct sb_product product_of(const struct lab *lab, int32_t m)
{
    return (struct sb_product){
        .y = lab->y, .x = lab->x, .weight = &lab->weight, .m = m, .scratch = lab->scratch};
}

/* Whether a product of m rows has the bits of mma.sync. *by: who made it. */
static int has_own_bits(struct lab *lab, int32_t m, enum sb_maker *by)
{
    static float got[MOST * OUTS], own[MOST * OUTS];
    const size_t bytes = (size_t)m * OUTS * sizeof(float);
    const int64_t by_library = cudasim_blas_calls(), by_wgmma = cudasim_wgmma_calls();
    const struct sb_product product = product_of(lab, m);
    const cudaError_t error = sb_gemm_run(lab->device->gemm, &product, lab->device->gpu.load);
    const int has_ended = cudaStreamSynchronize(lab->device->gpu.load) == cudaSuccess;

    *by = cudasim_blas_calls() > by_library  ? SB_BY_LIBRARY
          : cudasim_wgmma_calls() > by_wgmma ? SB_BY_WGMMA
                                             : SB_BY_MMA;
    return error == cudaSuccess && cudaPeekAtLastError() == cudaSuccess && has_ended &&
           sb_cuda_download(NULL, got, lab->y, bytes) == SPECBATCH_OK &&
           sb_cuda_download(NULL, own, lab->own, bytes) == SPECBATCH_OK &&
           memcmp(got, own, bytes) == 0;
}

/* Checks that products have the bits of mma.sync, and that those of `from` to `to` rows are made
 * by `by`, those of SB_PLANS_FROM and more otherwise by `else_by`, and all others by mma.sync. */
static void check_makers(enum sb_maker by, int32_t from, int32_t to, enum sb_maker else_by,
                         int warns)
{
    static const int32_t rows[] = {1,  8,  9,  16,  17,  32,  33,  63,  64,  65,
                                   66, 70, 71, 127, 128, 129, 200, 255, 256, 257};
    struct lab lab;

    CHECK_OK(open_lab(&lab));
    CHECK_OK(sb_gemm_prepare(lab.device->gemm, &lab.device->gpu, MOST));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const enum sb_maker expected = from <= rows[i] && rows[i] <= to ? by
                                       : rows[i] >= SB_PLANS_FROM       ? else_by
                                                                        : SB_BY_MMA;
        enum sb_maker got;
        if (!has_own_bits(&lab, rows[i], &got))
            FAIL("%d rows: other bits than those of mma.sync", (int)rows[i]);
        if (got != expected)
            FAIL("%d rows: made by %d, expected %d", (int)rows[i], (int)got, (int)expected);
    }
    CHECK_INT(lab.warnings > 0, warns);
    close_lab(&lab);
    CHECK(cudasim_device_bytes() == 0 && cudasim_objects() == 0);
}

/* The same with a cuBLASLt that has this fault, and a slow wgmma. */
static void check_library(enum cudasim_blas_fault what, int64_t argument, int32_t from, int32_t to,
                          int warns)
{
    cudasim_break_blas(what, argument);
    cudasim_break_wgmma(CUDASIM_WGMMA_SLOW, 1000000);
    check_makers(SB_BY_LIBRARY, from, to, SB_BY_MMA, warns);
}

static void test_a_sound_library_makes_them(void)
{
    check_library(CUDASIM_BLAS_SOUND, 0, 65, MOST, 0);
}

static void test_on_a_device_of_two_sums_a_step(void)
{
    const struct cudasim_machine a100 = {1, 13000, 8, 0, 108, (size_t)1 << 30, 163 << 10};

    cudasim_configure(&a100);
    check_library(CUDASIM_BLAS_SOUND, 0, 65, MOST, 0);
    cudasim_configure(NULL);
}

static void test_one_that_depends_on_the_rows(void)
{
    check_library(CUDASIM_BLAS_ROWS, 70, 65, 70, 1);
}

static void test_one_that_does_not_use_the_tensor_core(void)
{
    check_library(CUDASIM_BLAS_CHAIN, 0, 1, 0, 1);
}

/* One tile is wrong, and in a product of 256 rows the first, the middle and the last row are right.
 * The algorithm is refused all the same, and the next one is taken. */
static void test_one_tile_that_is_wrong(void)
{
    check_library(CUDASIM_BLAS_TILE, 16, 65, MOST, 0);
}

static void test_one_tile_that_is_not_written(void)
{
    check_library(CUDASIM_BLAS_HOLE, 16, 65, MOST, 0);
}

static void test_other_algorithms_for_every_number_of_rows(void)
{
    check_library(CUDASIM_BLAS_STAGES, 0, 65, MOST, 0);
}

/* cuBLASLt has the right bits but is slow, so the own kernel makes all products. */
static void test_a_slow_one_is_left_alone(void)
{
    check_library(CUDASIM_BLAS_SLOW, 50, 1, 0, 0);
}

/* wgmma makes all where it is fastest, whatever cuBLASLt does. */
static void test_a_sound_wgmma_makes_them(void)
{
    cudasim_blas(0);
    check_makers(SB_BY_WGMMA, SB_PLANS_FROM, MOST, SB_BY_MMA, 0);
    cudasim_blas(130100);
    cudasim_break_blas(CUDASIM_BLAS_SLOW, 50);
    check_makers(SB_BY_WGMMA, SB_PLANS_FROM, MOST, SB_BY_MMA, 0);
    cudasim_break_blas(CUDASIM_BLAS_CHAIN, 0);
    check_makers(SB_BY_WGMMA, SB_PLANS_FROM, MOST, SB_BY_MMA, 1);
    cudasim_break_blas(CUDASIM_BLAS_ROWS, 70);
    check_makers(SB_BY_WGMMA, SB_PLANS_FROM, MOST, SB_BY_MMA, 1);
    check_makers(SB_BY_WGMMA, SB_PLANS_FROM, MOST, SB_BY_MMA, 0);
}

/* One that adds otherwise in one column makes none, and the log says so. */
static void test_a_wgmma_of_other_bits(void)
{
    cudasim_blas(0);
    cudasim_break_wgmma(CUDASIM_WGMMA_OTHER, 0);
    check_makers(SB_BY_MMA, 65, MOST, SB_BY_MMA, 1);
    cudasim_blas(130100);
    cudasim_break_wgmma(CUDASIM_WGMMA_OTHER, 0);
    check_makers(SB_BY_LIBRARY, 65, MOST, SB_BY_MMA, 1);
}

static void test_a_driver_without_tensor_maps(void)
{
    cudasim_break_wgmma(CUDASIM_WGMMA_ABSENT, 0);
    check_makers(SB_BY_LIBRARY, 65, MOST, SB_BY_MMA, 0);
}

static void test_a_slow_wgmma(void)
{
    cudasim_blas(0);
    cudasim_break_wgmma(CUDASIM_WGMMA_SLOW, 1000000);
    check_makers(SB_BY_MMA, 65, MOST, SB_BY_MMA, 0);
    cudasim_blas(130100);
}

/* Fewer rows may be made by other shapes of block, other kernels, than the most rows of a pool.
 * Each is tested (with STEPS_EXCHANGED of cuda_fault.h in force, the one for 64 rows is wrong). */
static void test_every_shape_of_block(void)
{
    enum { WIDE_OUT = 110, ROWS = 100 };
    static float rows[WIDE_OUT * INS];
    const struct sb_gemm_library library = {.type = SB_BF16};
    struct sb_plan plans[SB_PLANS_TO + 1] = {{.by = SB_BY_MMA}};
    struct sb_shape shape = {WIDE_OUT, INS, 0, NULL, SB_PLANS_TO, 0, plans};
    struct sb_findings found;
    struct sb_weight w = {.n_out = WIDE_OUT, .n_in = INS};
    struct lab lab;

    CHECK_OK(open_lab(&lab));
    const struct sb_gpu *gpu = &lab.device->gpu;
    for (int i = 0; i < WIDE_OUT * INS; i++)
        rows[i] = (float)(i * 7919 % 1009 - 504) / 256.0f;
    CHECK_OK(sb_cuda_weight_create(&w, lab.device, &lab.mem, SB_BF16));
    CHECK_OK(sb_cuda_weight_fill(&w, lab.device, 0, WIDE_OUT, rows, SB_F32));
    shape.data = w.data;
    CHECK_INT(sb_cuda_gemm_mma_shape(SB_BF16, 64, WIDE_OUT, INS, &gpu->limits), 0);
    CHECK(sb_cuda_gemm_mma_shape(SB_BF16, ROWS, WIDE_OUT, INS, &gpu->limits) > 0);
    CHECK_OK(sb_gemm_plan(&library, gpu, &shape, ROWS, NULL, &found));
    sb_cuda_weight_free(&w, lab.device, &lab.mem);
    close_lab(&lab);
    CHECK(cudasim_device_bytes() == 0 && cudasim_objects() == 0);
}

/* There is no memory to test products of 257 rows. Fewer are tested, and more are made in pieces of
 * as many, until a pool finds the memory. Only without any no pool can be created. */
static void test_no_memory_to_test_them(void)
{
    const struct cudasim_machine small = {1, 13000, 9, 0, 6, (size_t)16 << 20, 0};
    const size_t room[] = {30000, 2000};
    size_t available, total;
    enum sb_maker by;
    struct lab lab;
    void *filler;

    cudasim_configure(&small);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(open_lab(&lab));
        CHECK_INT(cudaMemGetInfo(&available, &total), cudaSuccess);
        CHECK_OK(sb_cuda_alloc(&filler, &lab.device->gpu, available - room[i]));
        const int32_t rc = sb_gemm_prepare(lab.device->gemm, &lab.device->gpu, MOST);
        sb_cuda_free(&lab.device->gpu, filler);
        CHECK_INT(rc, i == 0 ? SPECBATCH_OK : SPECBATCH_E_NOMEM);
        CHECK_INT(lab.warnings, i == 0);
        if (i == 0) {
            CHECK(has_own_bits(&lab, MOST, &by) && by == SB_BY_WGMMA);
            const int64_t in_pieces = cudasim_launches();
            CHECK(has_own_bits(&lab, MOST, &by));
            CHECK(cudasim_launches() - in_pieces > 1);
        }
        CHECK_OK(sb_gemm_prepare(lab.device->gemm, &lab.device->gpu, MOST));
        CHECK_INT(lab.warnings, i == 0);
        const int64_t at_once = cudasim_launches();
        CHECK(has_own_bits(&lab, MOST, &by));
        CHECK_INT(cudasim_launches() - at_once, 1);
        close_lab(&lab);
    }
    cudasim_configure(NULL);
    CHECK(cudasim_device_bytes() == 0 && cudasim_objects() == 0);
}

/* ------------------------------------------------------------------ the plan file */

#define PLANS "specbatch plans 2\nSimulated GPU, sm_90, 6 multiprocessors, driver 13000, cublasLt "

static char plan_path[128];

static void write_plans(const char *text)
{
    FILE *f = fopen(plan_path, "wb");

    CHECK(f != NULL);
    CHECK(fputs(text, f) >= 0);
    CHECK_INT(fclose(f), 0);
}

/* The plan file, or an empty text. */
static const char *plans(void)
{
    static char text[8192];
    FILE *f = fopen(plan_path, "rb");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

    if (f)
        (void)fclose(f);
    text[n] = '\0';
    return text;
}

/* Opens a model with the plan file, and checks who makes products of so many rows, that the bits
 * are those of mma.sync, and whether the log has warnings. */
static void check_maker(int32_t rows, enum sb_maker expected, int warns)
{
    struct lab lab;
    enum sb_maker by;

    CHECK_OK(open_lab_with(&lab, plan_path));
    CHECK_OK(sb_gemm_prepare(lab.device->gemm, &lab.device->gpu, MOST));
    CHECK(has_own_bits(&lab, rows, &by));
    CHECK_INT((int)by, (int)expected);
    CHECK_INT(lab.warnings > 0, warns);
    close_lab(&lab);
    CHECK(cudasim_device_bytes() == 0 && cudasim_objects() == 0);
}

/* The same with a cuBLASLt that has this fault, and a slow wgmma. */
static void check_planned(enum cudasim_blas_fault what, int64_t argument, int32_t rows,
                          int by_library, int warns)
{
    cudasim_break_blas(what, argument);
    cudasim_break_wgmma(CUDASIM_WGMMA_SLOW, 1000000);
    check_maker(rows, by_library ? SB_BY_LIBRARY : SB_BY_MMA, warns);
}

/* What was faster in one process is so in the next, which would find otherwise. */
static void test_timings_are_kept(void)
{
    char before[8192];

    (void)remove(plan_path);
    check_planned(CUDASIM_BLAS_SOUND, 0, 130, 1, 0);
    snprintf(before, sizeof before, "%s", plans());
    CHECK(strstr(before, PLANS) == before);
    CHECK(strstr(before, "\nbf16 24 40 0 192 cublasLt ") != NULL);
    check_planned(CUDASIM_BLAS_SLOW, 50, 130, 1, 0);
    CHECK(strcmp(plans(), before) == 0);
    (void)remove(plan_path);
    check_planned(CUDASIM_BLAS_SLOW, 50, 130, 0, 0);
    CHECK(strstr(plans(), "\nbf16 24 40 0 192 mma\n") != NULL);
    check_planned(CUDASIM_BLAS_SOUND, 0, 130, 0, 0);
}

/* So is that wgmma was, which a file decides over no bits either. */
static void test_timings_of_wgmma_are_kept(void)
{
    (void)remove(plan_path);
    cudasim_blas(0);
    check_maker(130, SB_BY_WGMMA, 0);
    CHECK(strstr(plans(), "cublasLt 0, specbatch") != NULL);
    CHECK(strstr(plans(), "\nbf16 24 40 0 32 wgmma\nbf16 24 40 0 64 wgmma\n") != NULL);
    CHECK(strstr(plans(), "\nbf16 24 40 0 192 wgmma\n") != NULL);
    cudasim_break_wgmma(CUDASIM_WGMMA_SLOW, 1000000);
    check_maker(130, SB_BY_WGMMA, 0);
    cudasim_break_wgmma(CUDASIM_WGMMA_OTHER, 0);
    check_maker(130, SB_BY_MMA, 1);
    cudasim_blas(130100);
}

/* A file is trusted with time only: one that names algorithms whose bits are others changes
 * nothing. */
static void test_a_file_decides_over_no_bits(void)
{
    (void)remove(plan_path);
    check_planned(CUDASIM_BLAS_SOUND, 0, 130, 1, 0);
    check_planned(CUDASIM_BLAS_CHAIN, 0, 130, 0, 1);
    check_planned(CUDASIM_BLAS_ROWS, 70, 70, 1, 1);
    check_planned(CUDASIM_BLAS_ROWS, 70, 130, 0, 1);
    check_planned(CUDASIM_BLAS_TILE, 16, 130, 1, 0);
}

/* Where the algorithm that the file names is not there any more, or adds otherwise, wgmma is tried
 * as without a file. */
static void test_wgmma_in_place_of_an_algorithm(void)
{
    (void)remove(plan_path);
    check_planned(CUDASIM_BLAS_SOUND, 0, 130, 1, 0);
    CHECK(strstr(plans(), "\nbf16 24 40 0 192 cublasLt ") != NULL);
    cudasim_break_blas(CUDASIM_BLAS_CHAIN, 0);
    check_maker(130, SB_BY_WGMMA, 1);
}

/* The verdicts of another model stay in the file. */
static void test_models_share_a_file(void)
{
    char text[8192];

    (void)remove(plan_path);
    check_planned(CUDASIM_BLAS_SOUND, 0, 130, 1, 0);
    snprintf(text, sizeof text, "%.*sf16 7 9 0 128 mma\n", (int)(strstr(plans(), "bf16") - plans()),
             plans());
    write_plans(text);
    check_planned(CUDASIM_BLAS_SOUND, 0, 130, 1, 0);
    CHECK(strncmp(plans(), text, strlen(text)) == 0);
    CHECK(strstr(plans(), "\nbf16 24 40 0 192 cublasLt ") != NULL);
}

static void test_files_that_cannot_be_used(void)
{
    const struct cudasim_machine a100 = {1, 13000, 8, 0, 108, (size_t)1 << 30, 163 << 10};
    static const char *const damaged[] = {"",
                                          "something else\n",
                                          "specbatch plans 2",
                                          "bf16 24 40 0 192\n",
                                          "bf16 24 40 0 192 mm\n",
                                          "bf16 24 40 0 192 mma",
                                          "f32 24 40 0 192 mma\n",
                                          "bf16 24 40 0 192 cublasLt 1 2 3 4 5\n",
                                          "bf16 24 40 0 192 cublasLt 1 2 3 4 5 123456789\n"};
    char good[8192], text[8192];

    (void)remove(plan_path);
    check_planned(CUDASIM_BLAS_SOUND, 0, 130, 1, 0);
    snprintf(good, sizeof good, "%s", plans());
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        snprintf(text, sizeof text, "%s%s", i < 3 ? "" : good, damaged[i]);
        write_plans(text);
        check_planned(CUDASIM_BLAS_SOUND, 0, 130, 1, 1);
        if (strcmp(plans(), good) != 0)
            FAIL("file %d was not mended: %s", (int)i, plans());
    }
    cudasim_configure(&a100);
    check_planned(CUDASIM_BLAS_SLOW, 50, 130, 0, 0);
    cudasim_configure(NULL);
    CHECK(strstr(plans(), "sm_80") != NULL && strstr(plans(), "192 mma\n") != NULL);
    check_planned(CUDASIM_BLAS_SOUND, 0, 130, 1, 0);
    CHECK(strcmp(plans(), good) == 0);
}

/* Every allocation fails once. What is needed is an error then, and a file that is not is a line in
 * the log; nothing stays behind. */
static void test_no_memory_for_a_file(void)
{
    static struct failalloc state;
    int32_t rc = SPECBATCH_E_NOMEM;

    (void)remove(plan_path);
    check_planned(CUDASIM_BLAS_SOUND, 0, 130, 1, 0);
    for (long n = 1; rc != SPECBATCH_OK; n++) {
        const struct sb_mem mem = {failalloc_alloc, failalloc_free, &state};
        struct sb_log log = {count_warnings, &(int){0}};
        struct sb_gpu gpu = {.mem = mem, .log = log};
        struct sb_plan_file *file = NULL;
        failalloc_arm(&state, n, 0);
        rc = sb_plan_file_open(&file, &gpu, plan_path, 130100);
        if (rc == SPECBATCH_OK) {
            sb_plan_file_read(file);
            sb_plan_file_note(file, &(struct sb_verdict){.type = SB_F16, .rows = 128 + (int)n});
            sb_plan_file_write(file);
            rc = state.n_failed > 0 ? SPECBATCH_E_NOMEM : SPECBATCH_OK;
        }
        sb_plan_file_close(file);
        CHECK_INT((int)state.outstanding, 0);
        CHECK(n < 10);
    }
    CHECK(strstr(plans(), "f16 0 0 0 ") != NULL);
}

/* Each number that a verdict is for tells it from others. One for the own kernel leaves an older
 * one as it is, and behind 512 no more are noted. */
static void test_verdicts_are_told_apart_and_bounded(void)
{
    const struct sb_verdict own = {SB_BF16, 8, 8, 4, 128, SB_BY_MMA, {0}};
    struct sb_verdict others[5] = {own, own, own, own, own}, better = own;
    struct sb_gpu gpu = {.log = {count_warnings, &(int){0}}};
    struct sb_plan_file *file = NULL;

    CHECK_OK(sb_plan_file_open(&file, &gpu, plan_path, 130100));
    sb_plan_file_note(file, &own);
    others[0].type = SB_F16, others[1].n_out = others[2].n_in = 9;
    others[3].gated = 0, others[4].rows = 192;
    for (int i = 0; i < 5; i++)
        CHECK(sb_plan_file_find(file, &others[i]) == NULL);
    better.by = SB_BY_LIBRARY, better.algo.id = 1;
    sb_plan_file_note(file, &better);
    sb_plan_file_note(file, &own);
    CHECK(sb_plan_file_find(file, &own)->by == SB_BY_LIBRARY);
    for (int32_t n = 0; n < 600; n++) {
        others[0].rows = n;
        sb_plan_file_note(file, &others[0]);
        CHECK((sb_plan_file_find(file, &others[0]) != NULL) == (n < 511));
    }
    sb_plan_file_close(file);
}

/* A file that cannot be written is a line in the log. */
static void test_a_file_that_cannot_be_written(void)
{
    char good[sizeof plan_path];

    snprintf(good, sizeof good, "%s", plan_path);
    snprintf(plan_path, sizeof plan_path, "%.100s.d/none", good);
    check_planned(CUDASIM_BLAS_SOUND, 0, 130, 1, 1);
    snprintf(plan_path, sizeof plan_path, "%s", good);
    (void)remove(plan_path);
}

/* cuBLASLt passes its tests and refuses later, at once and while a stream captures. The own kernel
 * makes the product instead. */
static void test_one_that_refuses_when_it_runs(void)
{
    struct lab lab;
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    enum sb_maker by;

    cudasim_break_wgmma(CUDASIM_WGMMA_SLOW, 1000000);
    CHECK_OK(open_lab(&lab));
    CHECK_OK(sb_gemm_prepare(lab.device->gemm, &lab.device->gpu, 80));
    CHECK(has_own_bits(&lab, 80, &by) && by == SB_BY_LIBRARY);
    cudasim_break_blas(CUDASIM_BLAS_NO_RUN, 0);
    CHECK(has_own_bits(&lab, 80, &by) && by == SB_BY_MMA);
    CHECK_INT(cudaStreamBeginCapture(lab.device->gpu.load, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    const struct sb_product product = product_of(&lab, 80);
    CHECK_INT(sb_gemm_run(lab.device->gemm, &product, lab.device->gpu.load), cudaSuccess);
    CHECK_INT(cudaStreamEndCapture(lab.device->gpu.load, &graph), cudaSuccess);
    CHECK_INT(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    CHECK_INT(cudaGraphDestroy(graph), cudaSuccess);
    CHECK_INT(cudaGraphExecDestroy(exec), cudaSuccess);
    close_lab(&lab);
    CHECK(cudasim_device_bytes() == 0 && cudasim_objects() == 0);
}

/* A gated weight in several pieces, the last of them smaller: y has the own kernel's bits, rows of
 * gate first. */
static void test_a_weight_in_pieces(void)
{
    enum { PIECES_OUT = 300, M = 66 };
    static float got[M * PIECES_OUT], own[M * PIECES_OUT], rows[PIECES_OUT * INS];
    const struct sb_gemm_size size = {M, PIECES_OUT, INS, PIECES_OUT / 2};
    struct sb_gemm_library library = {.piece_bytes = 0};
    struct sb_plan plans[SB_PLANS_TO + 1] = {{.by = SB_BY_MMA}};
    struct sb_shape shape = {PIECES_OUT, INS, PIECES_OUT / 2, NULL, SB_PLANS_TO, 0, plans};
    struct sb_findings found;
    char why[200];
    struct sb_weight w = {.n_out = PIECES_OUT, .n_in = INS, .gated = PIECES_OUT / 2};
    void *scratch, *y;
    struct lab lab;

    cudasim_break_wgmma(CUDASIM_WGMMA_SLOW, 1000000);
    CHECK_OK(open_lab(&lab));
    const struct sb_gpu *gpu = &lab.device->gpu;
    for (int i = 0; i < PIECES_OUT * INS; i++)
        rows[i] = (float)(i * 7919 % 1009 - 504) / 256.0f;
    CHECK_OK(sb_cuda_weight_create(&w, lab.device, &lab.mem, SB_BF16));
    CHECK_OK(sb_cuda_weight_fill(&w, lab.device, 0, PIECES_OUT, rows, SB_F32));
    shape.data = w.data;
    sb_gemm_library_open(&library, SB_BF16, why, sizeof why);
    library.piece_bytes = 100 * (size_t)sb_cuda_ld(SB_BF16, INS) * 2;
    CHECK_INT(sb_gemm_piece(&library, &size), 128);
    CHECK_OK(sb_cuda_alloc(&scratch, gpu, sb_gemm_piece_bytes(&library, &size)));
    CHECK_OK(sb_cuda_alloc(&y, gpu, sizeof got));
    CHECK_OK(sb_gemm_plan(&library, gpu, &shape, M, NULL, &found));
    CHECK(plans[M].by == SB_BY_LIBRARY);
    const int64_t before = cudasim_blas_calls();
    CHECK(
        sb_gemm_by_library(&library, y, lab.x, w.data, scratch, &size, &plans[M].algo, gpu->load));
    CHECK_INT(cudaStreamSynchronize(gpu->load), cudaSuccess);
    CHECK_INT(cudasim_blas_calls() - before, 3);
    CHECK_OK(sb_cuda_download(NULL, got, y, sizeof got));
    CHECK_INT(sb_cuda_gemm_mma(y, lab.x, w.data, SB_BF16, NULL, M, PIECES_OUT, INS, w.gated,
                               &gpu->limits, gpu->load),
              cudaSuccess);
    CHECK_INT(cudaStreamSynchronize(gpu->load), cudaSuccess);
    CHECK_OK(sb_cuda_download(NULL, own, y, sizeof own));
    CHECK_MEM(got, own, sizeof own);
    sb_gemm_library_close(&library);
    sb_cuda_free(gpu, scratch);
    sb_cuda_free(gpu, y);
    sb_cuda_weight_free(&w, lab.device, &lab.mem);
    close_lab(&lab);
    CHECK(cudasim_device_bytes() == 0 && cudasim_objects() == 0);
}

TEST_BEGIN
struct test_dir dir = test_dir_make();
snprintf(plan_path, sizeof plan_path, "%s/plans", dir.path);
RUN(test_a_sound_library_makes_them);
RUN(test_on_a_device_of_two_sums_a_step);
RUN(test_one_that_depends_on_the_rows);
RUN(test_one_that_does_not_use_the_tensor_core);
RUN(test_one_tile_that_is_wrong);
RUN(test_one_tile_that_is_not_written);
RUN(test_other_algorithms_for_every_number_of_rows);
RUN(test_a_slow_one_is_left_alone);
RUN(test_a_sound_wgmma_makes_them);
RUN(test_a_wgmma_of_other_bits);
RUN(test_a_driver_without_tensor_maps);
RUN(test_a_slow_wgmma);
RUN(test_every_shape_of_block);
RUN(test_no_memory_to_test_them);
RUN(test_one_that_refuses_when_it_runs);
RUN(test_a_weight_in_pieces);
RUN(test_timings_are_kept);
RUN(test_timings_of_wgmma_are_kept);
RUN(test_a_file_decides_over_no_bits);
RUN(test_wgmma_in_place_of_an_algorithm);
RUN(test_models_share_a_file);
RUN(test_files_that_cannot_be_used);
RUN(test_no_memory_for_a_file);
RUN(test_verdicts_are_told_apart_and_bounded);
RUN(test_a_file_that_cannot_be_written);
test_dir_remove(&dir);
TEST_END
