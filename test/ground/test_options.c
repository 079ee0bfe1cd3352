/* The sized-struct rule in both directions, and every default and range of the option structs. */
#include "sbtest.h"

#include "model/model.h"
#include "options.h"
#include "pool/pool.h"

/* A struct as an older and as a newer version of a library would declare it. */
struct today {
    size_t struct_size;
    int32_t a, b;
    uint64_t c;
};
struct older {
    size_t struct_size;
    int32_t a, b;
};
struct newer {
    size_t struct_size;
    int32_t a, b;
    uint64_t c;
    uint32_t d, e;
};

static void test_copy_null_is_defaults(void)
{
    struct today full;
    memset(&full, 0x5a, sizeof full);
    CHECK_OK(sb_options_copy(&full, sizeof full, NULL, "t"));
    CHECK_INT(full.struct_size, sizeof full);
    CHECK(full.a == 0 && full.b == 0 && full.c == 0);
}

static void test_copy_older_caller(void)
{
    struct older given = {sizeof given, 3, 4};
    struct today full;
    memset(&full, 0x5a, sizeof full);
    CHECK_OK(sb_options_copy(&full, sizeof full, &given, "t"));
    CHECK(full.struct_size == sizeof full && full.a == 3 && full.b == 4 && full.c == 0);
}

static void test_copy_newer_caller(void)
{
    struct newer given = {sizeof given, 3, 4, 5, 0, 0};
    struct {
        struct today full;
        uint64_t guard;
    } at;
    at.guard = 77;
    CHECK_OK(sb_options_copy(&at.full, sizeof at.full, &given, "t"));
    CHECK(at.full.struct_size == sizeof at.full && at.full.a == 3 && at.full.c == 5);
    CHECK_INT(at.guard, 77);
    given.e = 1;
    CHECK_ERROR(sb_options_copy(&at.full, sizeof at.full, &given, "t"), SPECBATCH_E_OPTIONS,
                "byte 28");
}

static void test_copy_bad_size(void)
{
    const size_t bad[] = {0, 1, sizeof(size_t) - 1, 4097, SIZE_MAX};
    struct today given = {0, 0, 0, 0}, full;
    size_t i;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        given.struct_size = bad[i];
        CHECK_ERROR(sb_options_copy(&full, sizeof full, &given, "t"), SPECBATCH_E_INVALID,
                    "struct_size");
    }
    given.struct_size = sizeof(size_t);
    CHECK_OK(sb_options_copy(&full, sizeof full, &given, "t"));
}

static void test_init_writes_only_what_the_caller_has(void)
{
    struct {
        struct older options;
        uint64_t guard;
    } at;
    memset(&at, 0x5a, sizeof at);
    at.guard = 77;
    CHECK_OK(sb_options_init(&at.options, sizeof at.options));
    CHECK(at.options.struct_size == sizeof at.options && at.options.a == 0 && at.options.b == 0);
    CHECK_INT(at.guard, 77);
    CHECK_INT(sb_options_init(NULL, sizeof at.options), SPECBATCH_E_INVALID);
    CHECK_INT(sb_options_init(&at.options, sizeof(size_t) - 1), SPECBATCH_E_INVALID);
    CHECK_INT(sb_options_init(&at.options, 4097), SPECBATCH_E_INVALID);
}

static void test_report_both_ways(void)
{
    const struct today full = {sizeof full, 1, 2, 3};
    struct {
        struct older report;
        uint64_t guard;
    } old = {{sizeof(struct older), 0, 0}, 77};
    struct newer new = {sizeof new, 9, 9, 9, 9, 9};
    CHECK_OK(sb_options_report(&old.report, &full, sizeof full, "t"));
    CHECK(old.report.struct_size == sizeof(struct older) && old.report.a == 1 && old.report.b == 2);
    CHECK_INT(old.guard, 77);
    CHECK_OK(sb_options_report(&new, &full, sizeof full, "t"));
    CHECK(new.struct_size == sizeof new &&new.a == 1 && new.c == 3 && new.d == 0 && new.e == 0);
    CHECK_ERROR(sb_options_report(NULL, &full, sizeof full, "t"), SPECBATCH_E_INVALID, "t");
    new.struct_size = 1;
    CHECK_ERROR(sb_options_report(&new, &full, sizeof full, "t"), SPECBATCH_E_INVALID,
                "struct_size");
}

static void *hook_alloc(void *user, size_t size, size_t align)
{
    (void)user, (void)size, (void)align;
    return NULL;
}

static void hook_free(void *user, void *block, size_t size)
{
    (void)user, (void)block, (void)size;
}

static void test_model_options(void)
{
    specbatch_model_options given = SPECBATCH_MODEL_OPTIONS_INIT, full;
    char path[1025];

    memset(path, 'p', 1024);
    path[1024] = '\0';
    CHECK_OK(sb_model_options_resolve(&full, NULL));
    CHECK(full.device == SPECBATCH_DEVICE_CPU && full.compute == SPECBATCH_COMPUTE_AUTO &&
          !full.alloc);
    given.device = SPECBATCH_DEVICE_CUDA;
    CHECK_OK(sb_model_options_resolve(&full, &given));
    given.compute = SPECBATCH_COMPUTE_F32;
    CHECK_OK(sb_model_options_resolve(&full, &given));
    CHECK_INT(full.compute, SPECBATCH_COMPUTE_F32);
    given.device = 2;
    CHECK_ERROR(sb_model_options_resolve(&full, &given), SPECBATCH_E_INVALID,
                "device is 2, outside 0..1");
    given.device = 0;
    given = (specbatch_model_options)SPECBATCH_MODEL_OPTIONS_INIT;
    given.compute = -1;
    CHECK_ERROR(sb_model_options_resolve(&full, &given), SPECBATCH_E_INVALID,
                "compute is -1, outside 0..4");
    given.compute = SPECBATCH_COMPUTE_SPLIT;
    CHECK_OK(sb_model_options_resolve(&full, &given));
    CHECK_INT(full.compute, SPECBATCH_COMPUTE_SPLIT);
    given.device = SPECBATCH_DEVICE_CUDA;
    CHECK_ERROR(sb_model_options_resolve(&full, &given), SPECBATCH_E_UNSUPPORTED,
                "compute split is for the CPU");
    given.compute = SPECBATCH_COMPUTE_INT8;
    CHECK_ERROR(sb_model_options_resolve(&full, &given), SPECBATCH_E_UNSUPPORTED,
                "compute int8 is for the CPU");
    given.device = 0;
    CHECK_OK(sb_model_options_resolve(&full, &given));
    CHECK_INT(full.compute, SPECBATCH_COMPUTE_INT8);
    given.compute = SPECBATCH_COMPUTE_BF16;
    given.simd = 5;
    CHECK_ERROR(sb_model_options_resolve(&full, &given), SPECBATCH_E_INVALID, "simd");
    given.simd = SPECBATCH_SIMD_AVX512;
    given.device_index = 1;
    CHECK_ERROR(sb_model_options_resolve(&full, &given), SPECBATCH_E_INVALID, "device_index");
    given.device_index = 0;
    given.prefill = 2;
    CHECK_ERROR(sb_model_options_resolve(&full, &given), SPECBATCH_E_INVALID,
                "prefill is 2, outside 0..1");
    given.prefill = SPECBATCH_PREFILL_CUDNN;
    given.plan_file = "";
    CHECK_ERROR(sb_model_options_resolve(&full, &given), SPECBATCH_E_INVALID, "is empty");
    given.plan_file = path;
    CHECK_ERROR(sb_model_options_resolve(&full, &given), SPECBATCH_E_INVALID, "longer than 1023");
    path[1023] = '\0';
    CHECK_OK(sb_model_options_resolve(&full, &given));
    given.alloc = hook_alloc;
    CHECK_ERROR(sb_model_options_resolve(&full, &given), SPECBATCH_E_INVALID, "free is NULL");
    given.free = hook_free;
    CHECK_OK(sb_model_options_resolve(&full, &given));
    CHECK(full.alloc == hook_alloc && full.compute == SPECBATCH_COMPUTE_BF16);
    given.alloc = NULL;
    CHECK_ERROR(sb_model_options_resolve(&full, &given), SPECBATCH_E_INVALID, "alloc is NULL");
}

static void test_pool_defaults(void)
{
    specbatch_pool_options full;
    CHECK_OK(sb_pool_options_resolve(&full, NULL, 40960));
    CHECK_INT(full.policy, SPECBATCH_POLICY_RAGGED);
    CHECK_INT(full.batch, 8);
    CHECK_INT(full.window, 9); /* a spare slot for every eight rows */
    CHECK_INT(full.draft_len, 5);
    CHECK_INT(full.max_len, 2048);
    CHECK_INT(full.prefill_chunk, 128);
    CHECK(full.n_threads >= 1 && full.n_threads <= 256);
    CHECK_INT(full.queue_max, 65536);
    CHECK(full.budget_bytes == UINT64_MAX);
    CHECK_OK(sb_pool_options_resolve(&full, NULL, 512));
    CHECK_INT(full.max_len, 512);
}

static void test_pool_policies_decide_k_and_window(void)
{
    specbatch_pool_options given = SPECBATCH_POOL_OPTIONS_INIT, full;
    given.policy = SPECBATCH_POLICY_EXSPEC;
    given.batch = 4;
    CHECK_OK(sb_pool_options_resolve(&full, &given, 512));
    CHECK_INT(full.window, 24);
    given.window = 3;
    CHECK_ERROR(sb_pool_options_resolve(&full, &given, 512), SPECBATCH_E_INVALID,
                "window is 3, outside 4..");
    given.policy = SPECBATCH_POLICY_RAGGED; /* ignores the window */
    given.draft_len = -1;
    CHECK_OK(sb_pool_options_resolve(&full, &given, 512));
    CHECK_INT(full.draft_len, 0);
    CHECK_INT(full.window, 5);
    given.policy = SPECBATCH_POLICY_EQSPEC; /* a batch that stays together has no use for a spare
                                               slot */
    CHECK_OK(sb_pool_options_resolve(&full, &given, 512));
    CHECK_INT(full.window, 4);
    given.policy = SPECBATCH_POLICY_RAGGED;
    given.batch = 1;
    CHECK_OK(sb_pool_options_resolve(&full, &given, 512));
    CHECK_INT(full.window, 1);
    given.batch = 4096;
    CHECK_OK(sb_pool_options_resolve(&full, &given, 512));
    CHECK_INT(full.window, 4608);
    given.batch = 4;
    given.policy = SPECBATCH_POLICY_PLAIN;
    given.draft_len = 7;
    CHECK_OK(sb_pool_options_resolve(&full, &given, 512));
    CHECK_INT(full.draft_len, 0);
}

/* One int32_t field of the pool options: the values just inside and just outside its range. */
static void check_pool_range(size_t offset, const char *field, int32_t low, int32_t high)
{
    const struct {
        int64_t value;
        int32_t rc;
    } cases[] = {{low, SPECBATCH_OK},
                 {high, SPECBATCH_OK},
                 {(int64_t)high + 1, SPECBATCH_E_INVALID},
                 {(int64_t)low - 1, SPECBATCH_E_INVALID},
                 {INT32_MIN, SPECBATCH_E_INVALID},
                 {INT32_MAX, SPECBATCH_E_INVALID}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        specbatch_pool_options given = SPECBATCH_POOL_OPTIONS_INIT, full;
        int32_t value = (int32_t)cases[i].value;
        if (value == 0)
            continue; /* the default */
        memcpy((char *)&given + offset, &value, sizeof value);
        CHECK_INT(sb_pool_options_resolve(&full, &given, 4096), cases[i].rc);
        if (cases[i].rc != SPECBATCH_OK && !strstr(specbatch_last_error(), field))
            FAIL("message \"%s\" does not name %s", specbatch_last_error(), field);
    }
}

static void test_pool_ranges(void)
{
    check_pool_range(offsetof(specbatch_pool_options, batch), "batch", 1, 4096);
    check_pool_range(offsetof(specbatch_pool_options, draft_len), "draft_len", -1, 64);
    check_pool_range(offsetof(specbatch_pool_options, max_len), "max_len", 1, 4096);
    check_pool_range(offsetof(specbatch_pool_options, prefill_chunk), "prefill_chunk", 1, 8192);
    check_pool_range(offsetof(specbatch_pool_options, n_threads), "n_threads", 1, 256);
}

static void test_pool_policy_flags_hooks(void)
{
    specbatch_pool_options given = SPECBATCH_POOL_OPTIONS_INIT, full;
    given.policy = specbatch_policy_count();
    CHECK_ERROR(sb_pool_options_resolve(&full, &given, 512), SPECBATCH_E_INVALID, "policy");
    given.policy = -1;
    CHECK_ERROR(sb_pool_options_resolve(&full, &given, 512), SPECBATCH_E_INVALID, "policy");
    given.policy = 0;
    given.flags = 0x10;
    CHECK_ERROR(sb_pool_options_resolve(&full, &given, 512), SPECBATCH_E_OPTIONS,
                "flags has unknown bit");
    given.flags = SPECBATCH_POOL_SORT_BY_LENGTH | SPECBATCH_POOL_FIXED_K;
    given.free = hook_free;
    CHECK_ERROR(sb_pool_options_resolve(&full, &given, 512), SPECBATCH_E_INVALID, "alloc is NULL");
    given.alloc = hook_alloc;
    CHECK_OK(sb_pool_options_resolve(&full, &given, 512));
}

static void test_request(void)
{
    static const int32_t ids[] = {1, 2};
    specbatch_request given = SPECBATCH_REQUEST_INIT, full;
    CHECK_ERROR(sb_request_resolve(&full, NULL, 5), SPECBATCH_E_INVALID, "NULL");
    given.max_new = 1;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID, "neither");
    given.ids = ids;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID, "empty");
    given.n_ids = 2;
    CHECK_OK(sb_request_resolve(&full, &given, 5));
    CHECK_INT(full.draft_len, 5);
    given.text = "x";
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID, "both");
    given.ids = NULL;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID, "ids is NULL");
    given.n_ids = 0;
    CHECK_OK(sb_request_resolve(&full, &given, 5));
    given.max_new = 0;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID, "max_new is 0");
    given.flags = SPECBATCH_REQUEST_PROMPT_LOGPROBS; /* the prompt alone is asked about */
    CHECK_OK(sb_request_resolve(&full, &given, 5));
    given.max_new = -1;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID, "max_new is -1");
    given.max_new = 1;
    given.top_logprobs = 32;
    CHECK_OK(sb_request_resolve(&full, &given, 5));
    given.top_logprobs = 33;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID, "top_logprobs is 33");
    given.top_logprobs = -1;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID, "top_logprobs is -1");
    given.top_logprobs = 0;
    given.flags = 16;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_OPTIONS, "flags");
    given.flags = 0;
    given.text_flags = SPECBATCH_TEXT_KEEP_SPECIAL; /* means something for detokenize only */
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_OPTIONS, "text_flags");
}

static void test_request_draft_len_and_stops(void)
{
    static const int32_t ids[65];
    specbatch_request given = SPECBATCH_REQUEST_INIT, full;
    given.ids = ids;
    given.n_ids = given.max_new = 1;
    given.draft_len = 3;
    CHECK_OK(sb_request_resolve(&full, &given, 5));
    CHECK_INT(full.draft_len, 3);
    given.draft_len = 6; /* a bound, like the pool's: the smaller one holds */
    CHECK_OK(sb_request_resolve(&full, &given, 5));
    CHECK_INT(full.draft_len, 5);
    /* a plain pool takes requests made for others */
    CHECK_OK(sb_request_resolve(&full, &given, 0));
    CHECK_INT(full.draft_len, 0);
    given.draft_len = 65;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID,
                "draft_len is 65, outside -1..64");
    given.draft_len = -2;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID, "draft_len");
    given.draft_len = -1;
    CHECK_OK(sb_request_resolve(&full, &given, 5));
    CHECK_INT(full.draft_len, 0);
    given.n_stop_ids = 1;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID, "stop_ids is NULL");
    given.stop_ids = ids;
    given.n_stop_ids = 64;
    CHECK_OK(sb_request_resolve(&full, &given, 5));
    given.n_stop_ids = 65;
    CHECK_ERROR(sb_request_resolve(&full, &given, 5), SPECBATCH_E_INVALID, "n_stop_ids is 65");
}

TEST_BEGIN
RUN(test_copy_null_is_defaults);
RUN(test_copy_older_caller);
RUN(test_copy_newer_caller);
RUN(test_copy_bad_size);
RUN(test_init_writes_only_what_the_caller_has);
RUN(test_report_both_ways);
RUN(test_model_options);
RUN(test_pool_defaults);
RUN(test_pool_policies_decide_k_and_window);
RUN(test_pool_ranges);
RUN(test_pool_policy_flags_hooks);
RUN(test_request);
RUN(test_request_draft_len_and_stops);
TEST_END
