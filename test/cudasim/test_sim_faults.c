/*
 * The simulator of test/cudasim notices what it promises to notice in kernels, and nothing else.
 */
#include "fault_test.h"

struct fault_case {
    const char *kernel;
    unsigned blocks;
    size_t shared;
    const char *text; /* part of the fault; "": none */
};

static void check_faults(const struct fault_case *cases, int n)
{
    float zeros[N] = {0.0f};

    CHECK(cudasim_is_checked());
    for (int i = 0; i < n; i++) {
        float *memory = given_floats(zeros, N);
        const char *got = fault_of(cases[i].kernel, memory, cases[i].blocks, cases[i].shared);
        if (cases[i].text[0] ? !strstr(got, cases[i].text) : got[0] != '\0')
            FAIL("%s: \"%s\", expected \"%s\"", cases[i].kernel, got, cases[i].text);
        if (got[0]) /* sticky: every call fails until cudasim_recover */
            CHECK(cudaMalloc((void **)&memory, 4) == cudaErrorIllegalAddress &&
                  cudaGetLastError() == cudaErrorIllegalAddress &&
                  cudaGetLastError() == cudaErrorIllegalAddress);
        cudasim_recover();
        free_all();
    }
}

static void test_faults(void)
{
    static const struct fault_case cases[] = {
        {"nothing_wrong", 3, 0, "another block of the grid"},
        {"nothing_wrong", 1, 0, ""},
        {"shared_write_outside", 1, 0, "thread 63: it writes 4 bytes"},
        {"shared_read_outside", 1, 0, "outside every shared array"},
        {"shared_beside_another", 1, 0, "outside every shared array"},
        {"dynamic_outside", 1, 128, "thread 32: it writes 4 bytes"},
        {"dynamic_outside", 1, 256, ""},
        {"shared_not_written", 1, 0, "that nothing has written"},
        {"dynamic_not_written", 1, 128, "that nothing has written"},
        {"shared_of_another_block", 2, 0, "that nothing has written"},
        {"device_outside", 1, 0, "outside every device allocation"},
        {"device_vector_outside", 1, 0, "outside every device allocation"},
        {"device_read", 1, 0, ""},
        {"race_in_block", 1, 0, "no barrier between"},
        {"race_in_warp", 1, 0, "no barrier between"},
        {"race_after_read", 1, 0, "no barrier between"},
        {"race_of_blocks", 1, 0, ""},
        {"race_of_blocks", 2, 0, "another block of the grid"},
        {"blocks_with_atomics", 2, 0, ""},
        {"lane_that_ended", 1, 0, "waits for lane 5, which has ended"},
        {"lane_elsewhere", 1, 0, "waits for lanes that never reach it"},
        {"lane_not_in_mask", 1, 0, "lacks the calling lane"},
        {"vector_misaligned", 1, 0, "thread 9: it uses"},
        {"float_misaligned", 1, 0, "misaligned"},
        {"barriers_apart", 1, 0, "it is at the __syncthreads of"},
        {"barriers_together", 1, 0, ""},
        {"shared_of_both_kinds", 1, 8 << 10, ""},
        {"shared_of_both_kinds", 1, (8 << 10) + 16, "static and dynamic, beyond the 49152"},
        {"blocks_in_turns", 1, 0, ""},
        {"blocks_in_turns", 7, 0, ""},
        {"turns_not_cooperative", 2, 0, "not launched as cooperative"},
        {"blocks_not_ordered", 2, 0, "another block of the grid"},
        {"block_leaves_early", 3, 0, "it hangs: the blocks that would change"},
        {"threads_part_at_grid", 2, 0, "it is at the __syncthreads of"},
        {"some_meet<ALL_IS_WELL>", 1, 0, ""},
        {"some_meet<NO_MEETING>", 1, 0, "no barrier between"},
        {"some_meet<SECOND_COMES_TOO>", 1, 0, "a barrier of the first 32 threads of a block of 64"},
        {"some_meet<FIRST_NEVER_TELLS>", 1, 0, "it hangs"},
        {"released_too_early", 2, 0, "another block of the grid"},
        {"released_in_time", 2, 0, ""},
        {"bulk<NOTHING>", 1, 0, ""},
        {"bulk<NO_WAIT_FOR_FULL>", 1, 0, "bulk copy's bytes come: it has not waited"},
        {"bulk<NO_WAIT_FOR_EMPTY>", 1, 0, "more than the 1 arrivals of the mbarrier"},
        {"bulk<WAITS_FOR_FULL>", 1, 0, "bulk copy's bytes come: it has not waited"},
        {"bulk<EXPECTS_MORE>", 1, 0, "waits for 0 arrivals and 16 bytes that never come"},
        {"bulk<EXPECTS_LESS>", 1, 0, "waits for 0 arrivals and -16 bytes that never come"},
        {"bulk<READS_AFTER_ARRIVING>", 1, 0, "no barrier between"},
        {"bulk<NO_FENCE_AFTER_INIT>", 1, 0, "no async_fence was called since it was made"},
        {"bulk<NO_BARRIER_AFTER_INIT>", 1, 0, "made by thread 0 of the block with no barrier"},
        {"bulk<NO_FENCE_AFTER_STORE>", 1, 0, "has stored with no async_fence since"},
        {"bulk<NOT_BY_16_BYTES>", 1, 0, "all are multiples of 16"},
        {"bulk<BEYOND_MEMORY>", 1, 0, "outside every allocation of the device"},
        {"bulk<LEAVES_EARLY>", 1, 0, "ends while a bulk copy to"},
    };

    check_faults(cases, COUNT(cases));
}

/* Blocks that exchange what they store. */
static void test_faults_of_clusters(void)
{
    static const struct fault_case cases[] = {
        {"exchange<NOTHING>", 8, 0, ""},
        {"exchange<NO_WAIT_FOR_FULL>", 4, 0, "of another block of the grid"},
        {"exchange<STORES_AFTER_ARRIVING>", 4, 0, "another block of the grid"},
        {"exchange<ARRIVES_TWICE>", 4, 0, "arrives at the cluster's barrier twice"},
        {"exchange<WAITS_ALONE>", 4, 0, "waits at the cluster's barrier and has not arrived"},
        {"exchange<SOME_NEVER_ARRIVE>", 4, 0, "where others never arrive"},
        {"resident_shared", 30, 0, ""},
        {"resident_shared", 31, 0, "of a block when all are resident"},
    };

    check_faults(cases, COUNT(cases));
}

/* Products of a warpgroup, whose operands come by a tensor map. */
static void test_faults_of_warpgroups(void)
{
    static const struct fault_case cases[] = {
        {"warpgroup<NOTHING>", 1, 0, ""},
        {"warpgroup<NO_WAIT_FOR_FULL>", 1, 0, "a bulk copy"},
        {"warpgroup<NO_WAIT_FOR_EMPTY>", 1, 0, "which a wgmma reads that may not have ended"},
        {"warpgroup<NO_FENCE_AFTER_STORE>", 1, 0, "has stored with no async_fence since"},
        {"warpgroup<NO_FENCE_FOR_SUMS>", 1, 0, "no wgmma.fence was called since"},
        {"warpgroup<SUMS_NOT_AWAITED>", 1, 0, "ends with wgmma on their way"},
        {"warpgroup<STORES_TOO_EARLY>", 1, 0, "with no barrier between"},
        {"warpgroup<OTHER_OPERANDS>", 1, 0, "other operands than those of its warpgroup"},
        {"warpgroup<FEWER_PRODUCTS>", 1, 0, "has 1 wgmma, others of its warpgroup 2"},
        {"warpgroup<OPERAND_MISPLACED>", 1, 0, "not the k-th 32 bytes of 1 KiB"},
        {"warpgroup<OPERAND_OUTSIDE>", 1, 0, "outside every shared array"},
        {"warpgroup<BEYOND_MEMORY>", 1, 0, "outside every allocation"},
        {"warpgroup<NO_MAP>", 1, 0, "a copy by a tensor map, and there is none"},
    };

    check_faults(cases, COUNT(cases));
}

/* The sums of small integers, which are exact: of x x^T for two rows x, by 32 columns. */
static void test_products_of_a_warpgroup(void)
{
    uint16_t x[2][64];
    float *memory, *out = zeros(4), sum, expected = 0.0f;

    for (int i = 0; i < 128; i++) {
        const float value = (float)(i * 7 % 5 - 2);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        x[i / 64][i % 64] = (uint16_t)(bits >> 16);
    }
    for (int k = 0; k < 32; k++) {
        const float column = (float)(k * 7 % 5 - 2) + (float)((k + 64) * 7 % 5 - 2);
        expected += column * column;
    }
    memory = given(x, sizeof x);
    CHECK_CUDA(cudasim_fault_kernel("warpgroup<NOTHING>", memory, out, 1, N, 0, stream));
    CHECK_CUDA(fetch(&sum, out, 4));
    CHECK(sum == expected);
    free_all();
}

TEST_BEGIN
cudasim_print_faults(0);
if (!device_begin())
    return 2;
RUN(test_faults);
RUN(test_faults_of_clusters);
RUN(test_faults_of_warpgroups);
RUN(test_products_of_a_warpgroup);
device_end();
TEST_END
