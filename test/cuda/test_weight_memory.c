/*
 * The memory of weights on the simulated device. Small weights share few allocations and do not
 * overlap, little is taken that no weight has, and where memory is short a model may still have all
 * that there is. Whatever fails, nothing stays behind.
 */
#include "cudasim.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/device.h"
#include "backend/cuda/weight_memory.h"
#include "model/model.h"
#include "sbtest.h"
#include "support/metered.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"
#define MIB ((size_t)1 << 20)
#define FAR ((int64_t)1 << 40) /* more allocations than any test makes */

enum { MOST = 200 };

static struct meter host; /* what is in use of the host's memory */
static struct sb_gpu gpu = {.mem = {metered_alloc, metered_free, &host}};
static struct sb_weight_memory memory;
static struct {
    char *dev;
    size_t bytes;
    int value; /* of each byte */
} taken[MOST];
static int n_taken;

/* Takes memory for a weight and fills it with a value of its own. */
static int32_t take_weight(size_t bytes)
{
    void *dev = NULL;
    const int32_t rc = sb_weight_memory_take(&dev, &memory, &gpu, bytes);

    if (rc != SPECBATCH_OK || n_taken == MOST)
        return rc != SPECBATCH_OK ? rc : SPECBATCH_E_INTERNAL;
    taken[n_taken].dev = dev;
    taken[n_taken].bytes = bytes;
    taken[n_taken].value = 1 + n_taken % 251;
    if (cudaGetLastError() != cudaSuccess || (uintptr_t)dev % 256 != 0 ||
        cudaMemset(dev, taken[n_taken].value, bytes) != cudaSuccess)
        return SPECBATCH_E_INTERNAL;
    n_taken++;
    return rc;
}

/* Gives a weight back. Returns whether its bytes were still what they were filled with. */
static int give_weight(int i)
{
    char *bytes = malloc(taken[i].bytes);
    size_t n_same = 0;

    if (bytes &&
        cudaMemcpy(bytes, taken[i].dev, taken[i].bytes, cudaMemcpyDeviceToHost) == cudaSuccess)
        while (n_same < taken[i].bytes && bytes[n_same] == (char)taken[i].value)
            n_same++;
    free(bytes);
    sb_weight_memory_give(&memory, &gpu, taken[i].dev, taken[i].bytes);
    const int is_same = n_same == taken[i].bytes;
    taken[i] = taken[--n_taken];
    return is_same;
}

/* Whether nothing is in use, of the device or the host. */
static int is_clean(void)
{
    return cudasim_device_bytes() == 0 && cudasim_host_bytes() == 0 && cudasim_objects() == 0 &&
           host.now == 0;
}

static int n_slabs_of(const struct sb_weight_memory *of)
{
    int n = 0;

    for (const struct sb_slab *slab = of->slabs; slab; slab = slab->next)
        n++;
    return n;
}

static int n_slabs(void)
{
    return n_slabs_of(&memory);
}

static size_t bytes_taken(void)
{
    size_t sum = 0;

    for (int i = 0; i < n_taken; i++)
        sum += taken[i].bytes;
    return sum;
}

/* Gives all weights back, in an order that depends on the stride. Whether each had its bytes and
 * was counted, and nothing is left. */
static int give_all(int stride)
{
    int is_sound = 1;

    while (n_taken > 0) {
        is_sound &= gpu.held == bytes_taken();
        is_sound &= give_weight(stride * n_taken / 3 % n_taken);
    }
    return is_sound && gpu.held == 0 && is_clean();
}

/* ------------------------------------------------------------------ slabs */

static void test_weights_of_one_size_fill_their_slabs(void)
{
    const size_t weight = 3100000;
    int n_full = 0;

    cudasim_fail_alloc(FAR);
    for (int i = 0; i < 120; i++) {
        CHECK_OK(take_weight(weight));
        /* a quarter may not be cut yet, and the first slabs have some MiB that are nobody's */
        CHECK(cudasim_device_bytes() <= bytes_taken() * 4 / 3 + 5 * MIB);
    }
    const int64_t n = FAR - cudasim_fail_alloc(0);
    for (const struct sb_slab *slab = memory.slabs; slab; slab = slab->next)
        n_full += slab->cut + 2 * MIB > slab->bytes;
    printf("     %d allocations, %zu bytes for %zu\n", (int)n, cudasim_device_bytes(),
           bytes_taken());
    CHECK(n <= 24 && n_slabs() == n && n_full >= n_slabs() - 1);
    CHECK(memory.bytes == cudasim_device_bytes());
    CHECK(give_all(7));
}

static void test_weights_of_many_sizes(void)
{
    unsigned random = 1;

    for (int i = 0; i < 120; i++) {
        random = random * 1103515245 + 12345;
        CHECK_OK(take_weight(1 + random / 7 % (i % 3 == 0 ? 6000000 : 70000)));
    }
    CHECK(n_slabs() < 30);
    CHECK(memory.bytes <= bytes_taken() * 4 / 3 + 5 * MIB);
    CHECK(give_all(53));
}

/* Of two slabs with room for a weight, it is cut from the one that it fills better. */
static void test_room_is_kept_for_larger_weights(void)
{
    CHECK_OK(take_weight(1100 << 10));
    CHECK_OK(take_weight(1500 << 10));
    CHECK_OK(take_weight(400 << 10));
    CHECK_OK(take_weight(900 << 10));
    CHECK_INT(n_slabs(), 2);
    CHECK(give_all(1));
}

static void test_a_large_weight_is_an_allocation(void)
{
    CHECK_OK(take_weight(16 * MIB - 4096));
    CHECK_INT(n_slabs(), 1);
    CHECK_OK(take_weight(16 * MIB));
    CHECK_OK(take_weight(16 * MIB + 1));
    CHECK_INT(n_slabs(), 1);
    CHECK(cudasim_device_bytes() == memory.bytes + 32 * MIB + 1);
    CHECK(give_weight(1));
    CHECK(cudasim_device_bytes() == memory.bytes + 16 * MIB + 1);
    CHECK(give_all(0));
}

static void test_a_slab_goes_with_its_last_weight(void)
{
    for (int i = 0; i < 8; i++) /* the first slab has room for six */
        CHECK_OK(take_weight(300000));
    CHECK_INT(n_slabs(), 2);
    for (int i = 7; i > 0; i--) {
        CHECK(give_weight(i));
        CHECK(memory.bytes == (i > 6 ? 4 : 2) * MIB);
        CHECK(memory.bytes == cudasim_device_bytes());
    }
    CHECK_INT(n_slabs(), 1);
    CHECK(give_all(0));
}

/* ------------------------------------------------------------- no memory */

/* Two slabs of six weights, and then one weight after the other until there is no memory for one.
 * The message tells of the weight, and not of a slab. */
static void test_what_is_left_is_used(void)
{
    const struct cudasim_machine small = {1, 13000, 9, 0, 132, 5 * MIB, 0};
    int32_t rc = SPECBATCH_OK;

    cudasim_configure(&small);
    while (rc == SPECBATCH_OK && n_taken < MOST)
        rc = take_weight(300000);
    const int n = n_taken, is_sound = give_all(4);
    cudasim_configure(NULL);
    CHECK_INT(rc, SPECBATCH_E_NOMEM);
    CHECK_STR(specbatch_last_error(),
              "CUDA: no memory for a weight: 300000 bytes needed, 148576 of 5242880 free; the "
              "model's weights hold 4500000");
    CHECK_INT(n, 15);
    CHECK(is_sound);
}

static void *no_alloc(void *user, size_t size, size_t align)
{
    (void)user;
    (void)size;
    (void)align;
    return NULL;
}

static void test_no_memory_on_the_host(void)
{
    gpu.mem.alloc = no_alloc;
    const int32_t rc = take_weight(300000);
    gpu.mem.alloc = metered_alloc;
    CHECK_INT(rc, SPECBATCH_E_NOMEM);
    CHECK_INT(n_slabs(), 0);
    CHECK(give_all(0));
}

/* ----------------------------------------------------------------- models */

static int32_t open_model(specbatch_model **out, int32_t compute, int32_t weights)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.device = SPECBATCH_DEVICE_CUDA;
    options.compute = compute;
    options.weights = weights;
    options.alloc = metered_alloc;
    options.free = metered_free;
    options.alloc_user = &host;
    *out = NULL;
    return specbatch_model_open(out, TARGET, &options);
}

static const int32_t classes[][2] = {
    {SPECBATCH_COMPUTE_F32, SPECBATCH_WEIGHTS_AUTO},
    {SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_AUTO},
    {SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_Q4},
};

/* The weights of a model are in slabs, and what they hold is what the model says it has. */
static void test_a_model_has_slabs(void)
{
    for (int c = 0; c < 3; c++) {
        specbatch_model *model;
        struct sb_weight more[20];
        CHECK_OK(open_model(&model, classes[c][0], classes[c][1]));
        struct sb_device *const device = model->device;
        const size_t held = device->gpu.held;
        const int slabs = n_slabs_of(&device->weights);
        CHECK(slabs > 0 && slabs <= 2);
        CHECK(held <= device->weights.bytes && held <= specbatch_model_bytes(model));
        CHECK(held >= specbatch_model_bytes(model) / 10 * 9); /* the rest are norms */
        cudasim_fail_alloc(FAR);
        for (int i = 0; i < 20; i++) {
            more[i] = (struct sb_weight){.n_out = 53 + i, .n_in = 96};
            CHECK_OK(model->backend->weight_create(&more[i], device, &model->mem,
                                                   c == 2 ? SB_Q4_0 : SB_F32));
        }
        CHECK(cudasim_fail_alloc(0) >= FAR - 1);
        CHECK(device->gpu.held > held);
        for (int i = 0; i < 20; i++)
            model->backend->weight_free(&more[i], device, &model->mem);
        CHECK(device->gpu.held == held);
        specbatch_model_close(model);
        CHECK(is_clean());
    }
}

/* A device with ever more memory, until the model fits, which is before there is room for a slab.
 * In the 16-bit class alone a buffer of 2 MiB for loading comes after the first weight, so that the
 * model fits when both the slab and the buffer do. */
static void test_a_device_of_any_size(void)
{
    for (int c = 0; c < 3; c++) {
        struct cudasim_machine machine = {1, 13000, 9, 0, 132, 0, 0};
        int32_t rc = SPECBATCH_E_NOMEM;
        int n = 0, has_failed_otherwise = 0;
        int slabs = 1;
        for (machine.memory = c == 1 ? SB_STAGE_BYTES : 0; rc == SPECBATCH_E_NOMEM; n++) {
            specbatch_model *model;
            machine.memory += 20000;
            cudasim_configure(&machine);
            rc = open_model(&model, classes[c][0], classes[c][1]);
            if (rc == SPECBATCH_OK)
                slabs = n_slabs_of(&((struct sb_device *)model->device)->weights);
            specbatch_model_close(model);
            has_failed_otherwise |= !is_clean();
        }
        cudasim_configure(NULL);
        printf("     opens with %zu bytes\n", machine.memory);
        CHECK_OK(rc);
        CHECK(!has_failed_otherwise && n > 5 && slabs == (c == 1 ? 1 : 0));
    }
}

/* One allocation fails as a model is opened, any of them. A model does without its one slab, and
 * needs everything else. */
static void test_one_allocation_fails(void)
{
    for (int c = 0; c < 3; c++) {
        int n_opened = 0, n_failed = 0;
        for (int64_t n = 1, left = 0; left == 0; n++) {
            specbatch_model *model;
            cudasim_fail_alloc(n);
            const int32_t rc = open_model(&model, classes[c][0], classes[c][1]);
            left = cudasim_fail_alloc(0);
            CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
            n_opened += rc == SPECBATCH_OK;
            n_failed += rc != SPECBATCH_OK;
            specbatch_model_close(model);
            CHECK(is_clean());
        }
        printf("     %d do, %d do not\n", n_opened, n_failed);
        CHECK(n_opened == 2 && n_failed > 10);
    }
}

TEST_BEGIN
RUN(test_weights_of_one_size_fill_their_slabs);
RUN(test_weights_of_many_sizes);
RUN(test_room_is_kept_for_larger_weights);
RUN(test_a_large_weight_is_an_allocation);
RUN(test_a_slab_goes_with_its_last_weight);
RUN(test_what_is_left_is_used);
RUN(test_no_memory_on_the_host);
RUN(test_a_model_has_slabs);
RUN(test_a_device_of_any_size);
RUN(test_one_allocation_fails);
TEST_END
