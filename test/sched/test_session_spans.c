/*
 * Sessions of prompts with spans: what was computed in spans is known as such after it was loaded,
 * so that a hit ends where a cold prompt has other spans.
 */
#include <unistd.h>

#include "support/prefix_pool.h"

enum { N_PROMPT_IDS = 130, N_TALK = 170, SPAN = 64 };

static char path[] = "build/tmp-session-XXXXXX";

/* Decodes the ids in a pool, or in one of its own that keeps nothing. */
static specbatch_result *decode(specbatch_pool *pool, const int32_t *ids, int32_t n,
                                int32_t max_new)
{
    specbatch_request request = request_of(ids, n);
    specbatch_pool *used = pool ? pool : plain_pool(0);
    specbatch_result *result = NULL;

    request.max_new = max_new;
    if (used && specbatch_pool_submit(used, &request, NULL) == SPECBATCH_OK &&
        run_to_end(used) == SPECBATCH_OK)
        result = take(used);
    if (!pool)
        specbatch_pool_free(used);
    return result;
}

static int same(const specbatch_result *a, const specbatch_result *b)
{
    size_t n = 0, m = 0;
    const int32_t *x = specbatch_result_tokens(a, &n), *y = specbatch_result_tokens(b, &m);
    const float *p = specbatch_result_logprobs(a, NULL), *q = specbatch_result_logprobs(b, NULL);

    return a && b && n == m && memcmp(x, y, n * sizeof *x) == 0 && memcmp(p, q, n * sizeof *p) == 0;
}

/* A prompt of 130 ids has two spans, and its answer of 40 none. */
static void save_talk(int32_t *ids)
{
    specbatch_pool *pool = plain_pool(8);
    specbatch_result *result;
    size_t kept = 0;

    CHECK(pool != NULL);
    write_text(ids, 0, N_PROMPT_IDS);
    CHECK((result = decode(pool, ids, N_PROMPT_IDS, N_TALK - N_PROMPT_IDS)) != NULL);
    memcpy(ids + N_PROMPT_IDS, specbatch_result_tokens(result, NULL),
           (N_TALK - N_PROMPT_IDS) * sizeof *ids);
    specbatch_result_free(result);
    CHECK_OK(specbatch_pool_save_session(pool, ids, N_TALK, path, &kept));
    CHECK_INT(kept, 160);
    specbatch_pool_free(pool);
}

/* How many ids of the next prompt, the beginning of the conversation or the conversation and more,
 * are found in a pool that has loaded it: all of its whole blocks; only those in spans, if a cold
 * prompt computes more in spans; or those of the spans that a shorter prompt has too. */
static void check_loaded_spans(void)
{
    static const int32_t prompts[][2] = {{180, 160}, {192, 160}, {200, 128}, {150, 128}, {100, 64}};
    int32_t talk[LONGEST], ids[LONGEST];
    size_t n = 0;

    write_text(talk, 3, LONGEST);
    save_talk(talk);
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts && !sbtest_failed_now; i++) {
        specbatch_pool *pool = plain_pool(8);
        specbatch_result *warm, *cold;
        CHECK(pool != NULL);
        CHECK_OK(specbatch_pool_load_session(pool, path, ids, LONGEST, &n));
        CHECK_INT(n, N_TALK);
        CHECK_MEM(ids, talk, N_TALK * sizeof *ids);
        warm = decode(pool, talk, prompts[i][0], MAX_NEW);
        cold = decode(NULL, talk, prompts[i][0], MAX_NEW);
        CHECK(same(warm, cold));
        CHECK_INT(stat(pool, "prefix_tokens"), prompts[i][1]);
        specbatch_result_free(warm);
        specbatch_result_free(cold);
        specbatch_pool_free(pool);
    }
}

static void test_spans_are_known_after_loading(void)
{
    with_spans(SPAN, check_loaded_spans);
}

/* The session that the test before has left was computed with spans. */
static void test_a_pool_without_spans_refuses(void)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *before = target;
    specbatch_pool *pool;
    int32_t ids[LONGEST];
    size_t n;

    options.compute = SPECBATCH_COMPUTE_F32;
    target = NULL;
    CHECK_OK(specbatch_model_open(&target, TARGET, &options));
    CHECK((pool = plain_pool(8)) != NULL);
    CHECK_ERROR(specbatch_pool_load_session(pool, path, ids, LONGEST, &n), SPECBATCH_E_INVALID,
                "another shape");
    specbatch_pool_free(pool);
    specbatch_model_close(target);
    target = before;
}

TEST_BEGIN
const int file = mkstemp(path);
if (file < 0 || open_pair() != 0) {
    printf("FAIL open: %s\n", specbatch_last_error());
    return 1;
}
close(file);
RUN(test_spans_are_known_after_loading);
RUN(test_a_pool_without_spans_refuses);
remove(path);
close_pair();
TEST_END
