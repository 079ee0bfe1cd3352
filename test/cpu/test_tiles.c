/*
 * The matrix unit and its emulation: that the emulated unit computes what the order of blocks says,
 * that a real one does the same and leaves the host's tiles alone, and when the operating system is
 * asked for it. (test_gemm.c compares whole products.)
 *
 * Two mistakes that an implementation of the order of blocks could make are made here on purpose,
 * and have to be seen by a comparison of bits: a step that goes to the wrong chain, and padding
 * that is not zeros.
 */
#if defined(__linux__)
#define _GNU_SOURCE /* for syscall */
#endif
#define SB_LEVEL_SCALAR 1
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tiles.h"

#include <unistd.h>
#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#endif

#include "support/cpu_ways.h"

#include "backend/cpu_ops.h"
#include "port.h"
#include "sbtest.h"

static const struct sb_backend *cpu;

/* ------------------------------------------------------------------ emulated */

static float widen(uint32_t word, int is_odd)
{
    return bits_f32(is_odd ? word & 0xffff0000u : word << 16);
}

/* The sum that one block adds to: x, w [16 words], of w one for each line */
static float reference_product(float sum, const uint32_t *x, uint32_t (*w)[16], int column)
{
    float chain[2] = {0.0f, 0.0f};

    for (int k = 0; k < 32; k++)
        chain[k % 2] = fmaf(widen(x[k / 2], k % 2), widen(w[k / 2][column], k % 2), chain[k % 2]);
    return sum + (chain[0] + chain[1]);
}

/* A word of two bf16: of two numbers in [-1, 1), or of any bits. */
static uint32_t two_values(int is_wild)
{
    uint32_t low = f32_bits(is_wild ? cpu_any_bits() : cpu_uniform()),
             high = f32_bits(is_wild ? cpu_any_bits() : cpu_uniform());

    return low >> 16 | (high & 0xffff0000u);
}

static void test_emulated_product(void)
{
    static struct emulated_unit unit;
    uint32_t x[16][16], w[16][16];
    float before[16][16], after[16][16];

    for (int trial = 0; trial < 320; trial++) {
        const int rows = 1 + trial % 16, is_wild = trial % 3 == 0;
        for (int i = 0; i < 256; i++) {
            x[i / 16][i % 16] = two_values(is_wild);
            w[i / 16][i % 16] = two_values(is_wild);
            before[i / 16][i % 16] = is_wild ? cpu_any_bits() : cpu_uniform();
        }
        memcpy(after, before, sizeof after);
        emulated_enter(&unit, rows, 16);
        emulated_load(&unit, 3, before, TILE_LINE);
        emulated_load(&unit, 5, x, TILE_LINE);
        emulated_load(&unit, 7, w, TILE_LINE);
        emulated_product(&unit, 3, 5, 7);
        emulated_store(&unit, 3, after, TILE_LINE);
        emulated_leave(&unit);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                float expected = i < rows ? reference_product(before[i][j], x[i], w, j)
                                          : before[i][j]; /* rows that the tile does not have */
                CHECK(cpu_first_difference(&after[i][j], &expected, 1) < 0);
            }
    }
}

/* The same for integers: of 8 quads of steps or of 4, with bytes of all values. */
static void test_emulated_integers(void)
{
    static struct emulated_unit unit;
    int8_t x[16][32], w[8][16][4];
    int32_t sums[16][16];

    for (int trial = 0; trial < 320; trial++) {
        const int rows = 1 + trial % 16, lines = trial / 16 % 2 ? 8 : 4;
        for (int i = 0; i < 512; i++) {
            x[i / 32][i % 32] = (int8_t)(trial % 3 ? cpu_random() : 0x80u);
            w[i / 64][i / 4 % 16][i % 4] = (int8_t)(trial % 5 ? cpu_random() : 0x80u);
            sums[i / 16 % 16][i % 16] = -7;
        }
        emulated_enter(&unit, rows, lines);
        emulated_zero(&unit, 2);
        emulated_load(&unit, 4, x, 32);
        emulated_load(&unit, 6, w, TILE_LINE);
        emulated_integers(&unit, 2, 4, 6);
        emulated_store(&unit, 2, sums, TILE_LINE);
        emulated_leave(&unit);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                int32_t expected = 0;
                for (int k = 0; k < 4 * lines; k++)
                    expected += x[i][k] * w[k / 4][j][k % 4];
                CHECK_INT(sums[i][j], i < rows ? expected : -7);
            }
    }
}

/* ------------------------------------------------------------------ faults */

/* Exchanges steps 2 and 3 of a block in both factors. */
static void exchange_steps(struct emulated_unit *unit, int x, int w)
{
    for (int i = 0; i < 16; i++) {
        uint32_t *in_x = &unit->words[x][i][1], *in_w = &unit->words[w][1][i];
        *in_x = *in_x << 16 | *in_x >> 16;
        *in_w = *in_w << 16 | *in_w >> 16;
    }
}

/* A unit that feeds an even step to the chain of odd steps, and an odd one to the other. */
static void faulty_product(struct emulated_unit *unit, int sum, int x, int w)
{
    exchange_steps(unit, x, w);
    emulated_product(unit, sum, x, w);
    exchange_steps(unit, x, w); /* the factors are used again */
}

#define faulty_unit emulated_unit
#define faulty_enter emulated_enter
#define faulty_zero emulated_zero
#define faulty_load emulated_load
#define faulty_store emulated_store
#define faulty_leave emulated_leave
#define TILES(name) faulty_##name
#define TILES_TARGET
#include "kernels/cpu/gemm_tiles.h"

enum { M = 20, N = 70, K = 300 }; /* the last block of K lacks 20 steps */

/* A product by one way of forming blocks, at the scalar level. */
struct product {
    struct sb_cpu_gemm gemm;
    uint32_t *x;
    float y[M * N];
};

static void make_product(struct product *p, enum sb_products products, const float *x,
                         const void *panels)
{
    const int64_t words = sb_cpu_inputs_words(products, 1, M, K);
    const struct sb_cpu_inputs inputs = {.products = products,
                                         .form = SB_FORM_BF16,
                                         .m = M,
                                         .n = K,
                                         .x = x,
                                         .to = p->x = cpu_memory((size_t)words * 4)};

    memset(p->x, 0xff, (size_t)words * 4);
    sb_cpu_kernels_scalar.inputs(&inputs, 0, M);
    p->gemm = (struct sb_cpu_gemm){.products = products,
                                   .layout = SB_LAYOUT_BF16,
                                   .parts = 1,
                                   .m = M,
                                   .n_in = K,
                                   .n_out = N,
                                   .panels = panels,
                                   .x = p->x,
                                   .y = p->y,
                                   .ldy = N};
}

/* Fills the padding of the last block of a row tile's x with what lay there before: NaNs. */
static void spoil_padding(struct product *p)
{
    const int64_t block = sb_whole_blocks(K) / SB_BLOCK - 1;

    for (int64_t row = 0; row < sb_cpu_tile_rows(M, 1); row++)
        for (int64_t k = K % SB_BLOCK; k < SB_BLOCK; k++)
            ((uint16_t *)(void *)p->x)[(block * 16 + row) * SB_BLOCK + k] = 0xffff;
}

static void test_faults_are_seen(void)
{
    const size_t panel_bytes = (size_t)(sb_panel_count(N) * sb_panel_elements(SB_LAYOUT_BF16, K)) *
                               2;
    float *x = cpu_floats(M * K), *w = cpu_floats(N * K);
    void *panels = memset(cpu_memory(panel_bytes), 0, panel_bytes);
    static struct product expected, got;

    sb_cpu_kernels_scalar.pack(panels, SB_LAYOUT_BF16, K, 0, N, w, SB_F32);
    make_product(&expected, SB_BLOCKS_FMA, x, panels);
    make_product(&got, SB_BLOCKS_EMULATED, x, panels);
    sb_cpu_kernels_scalar.gemm(&expected.gemm, 0, 2);
    sb_cpu_kernels_scalar.gemm(&got.gemm, 0, 2);
    int sound = memcmp(got.y, expected.y, sizeof got.y);
    faulty_gemm(&got.gemm, 0, 2);
    int wrong_chain = memcmp(got.y, expected.y, sizeof got.y);
    spoil_padding(&got);
    sb_cpu_kernels_scalar.gemm(&got.gemm, 0, 2);
    int padding_kept = memcmp(got.y, expected.y, sizeof got.y);
    free(expected.x);
    free(got.x);
    free(panels);
    free(x);
    free(w);
    CHECK(sound == 0);
    CHECK(wrong_chain != 0);
    CHECK(padding_kept != 0);
}

/* ------------------------------------------------------------------ permission */

/* Whether this process has been permitted to use the matrix unit. */
static int is_permitted(void)
{
    uint64_t states = 0;

#if defined(__linux__) && defined(__x86_64__)
    if (syscall(SYS_arch_prctl, 0x1022 /* ARCH_GET_XCOMP_PERM */, &states) != 0)
        return 0;
#endif
    return (states >> 18 & 1) != 0;
}

/* Opens and closes a device, and returns the status. */
static int32_t try_device(int32_t compute, int32_t simd)
{
    const struct sb_device_options options = {.compute = compute, .simd = simd};
    struct sb_device *device;
    int32_t rc = cpu->device_open(&device, &cpu_mem, &options);

    if (rc == SPECBATCH_OK)
        cpu->device_close(device);
    return rc;
}

/* A process is only asked for the unit when that is of use: the grant cannot be taken back. This
 * has to be the first test of the program. */
static void test_unit_is_not_asked_for_in_vain(void)
{
    CHECK(!is_permitted());
    for (int32_t simd = SPECBATCH_SIMD_SCALAR; simd <= SPECBATCH_SIMD_AVX512; simd++) {
        try_device(SPECBATCH_COMPUTE_SPLIT, simd);
        try_device(SPECBATCH_COMPUTE_BF16, simd);
        try_device(SPECBATCH_COMPUTE_INT8, simd);
        CHECK(!sb_cpu_has_matrix_unit(simd));
    }
    CHECK_OK(try_device(SPECBATCH_COMPUTE_F32, SPECBATCH_SIMD_AUTO));
    CHECK_INT(try_device(SPECBATCH_COMPUTE_F32, SPECBATCH_SIMD_AMX),
              sb_port_has_amx() ? SPECBATCH_OK : SPECBATCH_E_UNSUPPORTED);
    CHECK(!is_permitted());
}

static void test_permission(void)
{
    int has = sb_port_has_amx(), granted = sb_port_request_amx();

    CHECK(has || !granted);
    CHECK_INT(granted, is_permitted());
    CHECK_INT(sb_port_request_amx(), granted); /* may be asked again */
    CHECK_INT(sb_cpu_has_matrix_unit(SPECBATCH_SIMD_AUTO), granted);
    if (granted)
        CHECK_OK(try_device(SPECBATCH_COMPUTE_SPLIT, SPECBATCH_SIMD_AMX));
    else
        CHECK_ERROR(try_device(SPECBATCH_COMPUTE_SPLIT, SPECBATCH_SIMD_AMX),
                    SPECBATCH_E_UNSUPPORTED, "AMX");
    CHECK_OK(try_device(SPECBATCH_COMPUTE_SPLIT, SPECBATCH_SIMD_AUTO));
}

/* ------------------------------------------------------------------ real */

/* The unit is used only where it agrees with the emulated one; it should on every processor. */
static void test_real_unit(void)
{
    const struct sb_cpu_kernels *kernels = sb_cpu_kernels_for(SPECBATCH_SIMD_AMX);

    if (!kernels || !sb_port_request_amx())
        SKIP("no matrix unit (AMX) here");
    CHECK(kernels->tiles_are_blocks());
}

#if defined(SB_TILE_INTRINSICS)

/* Multiplies 20 rows on the calling thread. */
static int multiply(struct cpu *way)
{
    static float x[20 * 64], y[20 * 64];
    struct sb_weight weight = {.n_out = 64, .n_in = 64};
    int32_t rc = cpu->weight_create(&weight, way->device, &cpu_mem, SB_BF16);

    if (rc != SPECBATCH_OK)
        return 0;
    cpu->gemm(way->exec, y, x, &weight, NULL, 20);
    cpu->weight_free(&weight, way->device, &cpu_mem);
    return 1;
}

/* Whether two of the thread's tiles, and their shapes, are there again after a product. */
static TARGET_TILES int tiles_survive(struct cpu *way)
{
    _Alignas(64) struct tile_config config = {.palette = 1}, after;
    uint32_t pattern[2][16][16], got[2][16][16] = {0};

    for (int i = 0; i < 512; i++)
        pattern[i / 256][i / 16 % 16][i % 16] = (uint32_t)i * 2654435761u;
    config.rows[3] = 16;
    config.line_bytes[3] = 64;
    config.rows[6] = 5;
    config.line_bytes[6] = 48;
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    _tile_loadd(3, pattern[0], 64);
    _tile_loadd(6, pattern[1], 64);
    int done = multiply(way);
    _tile_storeconfig(&after);
    _tile_stored(3, got[0], 64);
    _tile_stored(6, got[1], 64);
    _tile_release();
    __asm__ volatile("" : : "r"(&after), "r"(got) : "memory");
    for (int i = 0; i < 5; i++)
        done = done && memcmp(got[1][i], pattern[1][i], 48) == 0;
    return done && memcmp(&after, &config, sizeof after) == 0 &&
           memcmp(got[0], pattern[0], sizeof got[0]) == 0;
}

/* Whether a thread that had no tiles has none after a product. */
static TARGET_TILES int no_tiles_remain(struct cpu *way)
{
    _Alignas(64) struct tile_config after;
    int done = multiply(way);

    _tile_storeconfig(&after);
    __asm__ volatile("" : : "r"(&after) : "memory");
    return done && after.palette == 0;
}

static void test_tiles_of_the_host_survive(void)
{
    struct cpu ways[CPU_WAYS];

    if (!sb_cpu_has_matrix_unit(SPECBATCH_SIMD_AMX))
        SKIP("no matrix unit (AMX) here");
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_SPLIT), ok = 1, n_tried = 0;
    for (int w = 0; w < n_ways; w++)
        if (ways[w].device->blocks == SB_BLOCKS_TILES && ways[w].exec->n_threads == 1) {
            ok = ok && tiles_survive(&ways[w]) && no_tiles_remain(&ways[w]);
            n_tried++;
        }
    cpu_close(ways, n_ways);
    CHECK(ok && n_tried > 0);
}

#else

static void test_tiles_of_the_host_survive(void)
{
    SKIP("a compiler without the matrix unit");
}

#endif

TEST_BEGIN
struct sb_fp_env env;
cpu = sb_backend_cpu();
sb_port_fp_enter(&env);
RUN(test_unit_is_not_asked_for_in_vain);
RUN(test_emulated_product);
RUN(test_emulated_integers);
RUN(test_faults_are_seen);
RUN(test_permission);
RUN(test_real_unit);
RUN(test_tiles_of_the_host_survive);
TEST_END
