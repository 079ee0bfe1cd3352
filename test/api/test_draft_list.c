/*
 * Drafts of several sources: who is asked for which row, what requests choose, what is refused, and
 * who is told of ends. That no list changes a token is shown by test/contract/test_contract.c; here
 * requests also have to get the answer of plain decoding, where something went wrong on the way.
 */
#include "sbtest.h"

#include <math.h>

#include "pool/pool.h"
#include "support/drafts.h"
#include "support/run_to_end.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"

enum { N_NEW = 24, K = 3 };

static specbatch_model *target;
static int32_t prompt[] = {5, 17, 300, 41, 5, 99, 210};

/* What the functions below saw and are to do. */
static struct watch {
    int calls, retires, releases;
    uint64_t seen; /* a bit for each request that propose saw */
    int silent;    /* propose nothing */
    int refuse;    /* fail */
} watch;

static int32_t propose(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    watch.calls++;
    for (size_t b = 0; b < n_rows; b++) {
        watch.seen |= UINT64_C(1) << rows[b]->request_id;
        rows[b]->n_out = watch.silent ? 0 : 1;
        rows[b]->out[0] = 7;
    }
    return watch.refuse;
}

static void retire(void *user, uint64_t id, void *request_user)
{
    (void)user, (void)id, (void)request_user;
    watch.retires++;
}

static void release(void *user)
{
    (void)user;
    watch.releases++;
}

static const specbatch_draft_ops watched = {sizeof watched, propose, retire, release, NULL};

/* The sources, in the order in which letters name them: n-grams, functions, a model. */
static specbatch_draft *list_of(const char *letters)
{
    specbatch_draft *sources[40] = {NULL}, *list = NULL;
    size_t n = 0;
    int32_t rc = SPECBATCH_OK;

    for (; letters[n] && rc == SPECBATCH_OK; n++)
        rc = letters[n] == 'n'   ? specbatch_draft_from_ngrams(&sources[n], NULL)
             : letters[n] == 'f' ? specbatch_draft_from_ops(&sources[n], &watched)
                                 : specbatch_draft_from_model(&sources[n], target);
    if (rc == SPECBATCH_OK)
        rc = specbatch_draft_from_list(&list, sources, n);
    for (size_t i = 0; i < n; i++)
        specbatch_draft_release(sources[i]);
    return rc == SPECBATCH_OK ? list : NULL;
}

static specbatch_pool_options small_options(void)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.batch = 3;
    options.max_len = 64;
    options.draft_len = K;
    options.n_threads = 1;
    options.flags = SPECBATCH_POOL_FIXED_K;
    return options;
}

static int32_t create(specbatch_pool **pool, const char *letters)
{
    const specbatch_pool_options options = small_options();
    specbatch_draft *draft = list_of(letters);

    memset(&watch, 0, sizeof watch);
    return create_with(pool, target, draft ? SPECBATCH_OK : SPECBATCH_E_INVALID, draft, &options);
}

static int32_t submit(specbatch_pool *pool, uint32_t sources)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = prompt;
    request.n_ids = sizeof prompt / sizeof *prompt;
    request.max_new = N_NEW;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    request.draft_sources = sources;
    return specbatch_pool_submit(pool, &request, NULL);
}

static uint64_t stat(const specbatch_pool *pool, const char *name)
{
    uint64_t value = UINT64_MAX;

    return specbatch_pool_stat(pool, name, &value) == SPECBATCH_OK ? value : UINT64_MAX;
}

/* Collects a result, and says how many of its tokens are those of plain decoding. */
static size_t collect(specbatch_pool *pool, specbatch_result **result)
{
    specbatch_pool_options options = small_options();
    specbatch_pool *plain = NULL;
    specbatch_result *expected = NULL;
    size_t n = 0, n_equal = 0;

    options.policy = SPECBATCH_POLICY_PLAIN;
    if (specbatch_pool_create(&plain, target, NULL, &options) == SPECBATCH_OK &&
        submit(plain, 0) == SPECBATCH_OK && run_to_end(plain) == SPECBATCH_OK &&
        specbatch_pool_collect(plain, &expected) == SPECBATCH_OK &&
        specbatch_pool_collect(pool, result) == SPECBATCH_OK) {
        const int32_t *tokens = specbatch_result_tokens(*result, &n);
        const int32_t *right = specbatch_result_tokens(expected, NULL);
        while (n_equal < n && tokens[n_equal] == right[n_equal])
            n_equal++;
    }
    specbatch_result_free(expected);
    specbatch_pool_free(plain);
    return n_equal;
}

/* Collects all of n results, which have to be right. */
static int collect_all(specbatch_pool *pool, int n)
{
    int right = 0;

    for (int i = 0; i < n; i++) {
        specbatch_result *result = NULL;
        right += collect(pool, &result) == N_NEW;
        specbatch_result_free(result);
    }
    return right == n;
}

static void test_lists_are_refused(void)
{
    specbatch_draft *sources[33], *draft = NULL, *list = list_of("nf");

    CHECK(list != NULL && list_of("ff") == NULL);
    CHECK(strstr(specbatch_last_error(),
                 "drafts[0] and drafts[1] are both of the kind callbacks") != NULL);
    CHECK(list_of("mnm") == NULL);
    CHECK(strstr(specbatch_last_error(), "drafts[0] and drafts[2] are both of the kind model") !=
          NULL);
    CHECK_OK(specbatch_draft_from_ngrams(&sources[0], NULL));
    for (int i = 1; i < 33; i++)
        sources[i] = sources[0];
    CHECK_ERROR(specbatch_draft_from_list(&draft, sources, 33), SPECBATCH_E_INVALID, "n_drafts");
    CHECK_ERROR(specbatch_draft_from_list(&draft, sources, 0), SPECBATCH_E_INVALID, "n_drafts");
    CHECK_ERROR(specbatch_draft_from_list(NULL, sources, 1), SPECBATCH_E_INVALID, "out");
    CHECK_ERROR(specbatch_draft_from_list(&draft, NULL, 1), SPECBATCH_E_INVALID, "drafts");
    sources[1] = list;
    CHECK_ERROR(specbatch_draft_from_list(&draft, sources, 2), SPECBATCH_E_INVALID,
                "drafts[1] is a list");
    sources[1] = NULL;
    CHECK_ERROR(specbatch_draft_from_list(&draft, sources, 2), SPECBATCH_E_INVALID,
                "drafts[1] is NULL");
    CHECK(draft == NULL);
    sources[1] = sources[0];
    CHECK_OK(specbatch_draft_from_list(&draft, sources, 32));
    specbatch_draft_release(draft);
    specbatch_draft_release(list);
    specbatch_draft_release(sources[0]);
}

/* A model behind functions that always propose never runs; where they are silent it does. */
static void test_a_source_is_asked_for_rows_that_none_before_it_serves(void)
{
    specbatch_pool *pool;

    CHECK_OK(create(&pool, "fm"));
    CHECK_OK(submit(pool, 0));
    CHECK_OK(run_to_end(pool));
    CHECK(watch.calls > 0 && stat(pool, "tokens_drafted") > 0);
    CHECK_INT(stat(pool, "draft_passes"), 0);
    CHECK(collect_all(pool, 1));
    watch.silent = 1;
    CHECK_OK(submit(pool, 0));
    CHECK_OK(run_to_end(pool));
    CHECK(stat(pool, "draft_passes") > 0);
    CHECK(collect_all(pool, 1));
    specbatch_pool_free(pool);
    CHECK_INT(watch.retires, 2);
    CHECK_INT(watch.releases, 1);
}

/* Requests that name their sources get proposals of no other. */
static void test_requests_choose_their_sources(void)
{
    specbatch_result *result = NULL;
    specbatch_pool *pool;

    CHECK_OK(create(&pool, "fm"));
    CHECK_OK(submit(pool, 1));
    CHECK_OK(submit(pool, 2));
    CHECK_OK(submit(pool, 3));
    CHECK_OK(run_to_end(pool));
    CHECK_INT(watch.seen, 1u << 1 | 1u << 3);
    CHECK(stat(pool, "draft_passes") > 0);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(collect(pool, &result), N_NEW);
        if (specbatch_result_id(result) == 2) /* the target proposes for itself */
            CHECK_INT(specbatch_result_accepted(result), specbatch_result_drafted(result));
        specbatch_result_free(result);
    }
    specbatch_pool_free(pool);
}

static void test_sources_that_are_not_there_are_refused(void)
{
    specbatch_pool_options options = small_options();
    specbatch_pool *pool;

    CHECK_OK(create(&pool, "nfm"));
    CHECK_ERROR(submit(pool, 8), SPECBATCH_E_OPTIONS, "draft_sources");
    CHECK_ERROR(submit(pool, 15), SPECBATCH_E_OPTIONS, "0x8");
    CHECK_OK(submit(pool, 7));
    specbatch_pool_free(pool);
    CHECK_OK(create_with_ngrams(&pool, target, NULL, &options));
    CHECK_ERROR(submit(pool, 2), SPECBATCH_E_OPTIONS, "draft_sources");
    CHECK_OK(submit(pool, 1));
    specbatch_pool_free(pool);
    options.policy = SPECBATCH_POLICY_PLAIN; /* it never speculates */
    CHECK_OK(create_with_ngrams(&pool, target, NULL, &options));
    CHECK_OK(submit(pool, UINT32_MAX));
    specbatch_pool_free(pool);
}

/* Functions fail in a round for which the model has prepared: the model's lengths go back to what
 * its cache holds. The target proposes for itself, so any wrong entry shows in what is accepted. */
static void test_a_round_that_fails_behind_a_model_is_repeated(void)
{
    specbatch_result *result = NULL;
    specbatch_pool *pool;

    CHECK_OK(create(&pool, "mf"));
    CHECK_OK(submit(pool, 1));
    CHECK_OK(submit(pool, 2));
    CHECK_OK(specbatch_pool_step(pool, NULL)); /* the prompts */
    for (int i = 0; i < 3; i++) {
        watch.refuse = 1;
        CHECK_ERROR(specbatch_pool_step(pool, NULL), SPECBATCH_E_CANCELLED, "propose");
        CHECK_ERROR(specbatch_pool_step(pool, NULL), SPECBATCH_E_CANCELLED, "propose");
        watch.refuse = 0;
        CHECK_OK(specbatch_pool_step(pool, NULL));
    }
    CHECK_OK(run_to_end(pool));
    for (int i = 0; i < 2; i++) {
        CHECK_INT(collect(pool, &result), N_NEW);
        if (specbatch_result_id(result) == 1) {
            CHECK(specbatch_result_drafted(result) > 0);
            CHECK_INT(specbatch_result_accepted(result), specbatch_result_drafted(result));
        }
        specbatch_result_free(result);
    }
    specbatch_pool_free(pool);
}

/* A source that wants a sequence never again leaves it to the others. */
static void test_a_model_that_cannot_read_a_token_leaves_the_row_to_others(void)
{
    const int32_t vocab = target->config.vocab;
    const specbatch_pool_options options = small_options();
    specbatch_model *small = NULL;
    specbatch_draft *sources[2], *list;
    specbatch_pool *pool;

    memset(&watch, 0, sizeof watch);
    CHECK_OK(specbatch_model_open(&small, TARGET, NULL));
    CHECK_OK(specbatch_draft_from_model(&sources[0], small));
    CHECK_OK(specbatch_draft_from_ops(&sources[1], &watched));
    CHECK_OK(specbatch_draft_from_list(&list, sources, 2));
    CHECK_OK(create_with(&pool, target, SPECBATCH_OK, list, &options));
    small->config.vocab = 250; /* the prompt has a larger id */
    CHECK_OK(submit(pool, 0));
    CHECK_OK(run_to_end(pool));
    small->config.vocab = vocab;
    CHECK(watch.calls > 3);
    CHECK_INT(stat(pool, "draft_passes"), 0);
    CHECK(collect_all(pool, 1));
    specbatch_pool_free(pool);
    specbatch_draft_release(sources[0]);
    specbatch_draft_release(sources[1]);
    specbatch_model_close(small);
}

/* ------------------------------------------------------------- draft_min_prob */

static int32_t run_sure(float min_prob, uint64_t *passes, uint64_t *drafted)
{
    specbatch_pool_options options = small_options();
    specbatch_pool *pool;
    int32_t rc;

    options.draft_min_prob = min_prob;
    rc = create_with_model(&pool, target, target, &options);
    for (int i = 0; i < 3 && rc == SPECBATCH_OK; i++)
        rc = submit(pool, 0);
    if (rc == SPECBATCH_OK)
        rc = run_to_end(pool);
    *passes = stat(pool, "draft_passes");
    *drafted = stat(pool, "tokens_drafted");
    if (rc == SPECBATCH_OK && !collect_all(pool, 3))
        rc = SPECBATCH_E_INTERNAL;
    specbatch_pool_free(pool);
    return rc;
}

/* The surer the draft has to be, the fewer proposals it makes, and passes without rows are not run.
 * No token has all of the probability, so at 1 there is one proposal a round. */
static void test_a_draft_that_is_not_sure_stops(void)
{
    uint64_t any_passes, any, tiny_passes, tiny, few_passes, few;

    CHECK_OK(run_sure(0.0f, &any_passes, &any));
    CHECK_OK(run_sure(1e-30f, &tiny_passes, &tiny));
    CHECK_OK(run_sure(1.0f, &few_passes, &few));
    CHECK_INT(tiny, any);
    CHECK_INT(tiny_passes, any_passes);
    /* The first token is that of the prompt's round; then each round wins a proposal and a bonus,
     * and in the last one there is no room for a proposal. */
    CHECK_INT(few, 3 * (N_NEW - 2) / 2);
    CHECK(few < any);
}

static void test_probabilities_are_refused(void)
{
    const float bad[] = {-0.1f, 1.001f, NAN, INFINITY, -INFINITY};
    specbatch_pool_options options = small_options();
    specbatch_pool *pool = NULL;
    uint64_t bytes;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options.draft_min_prob = bad[i];
        CHECK_ERROR(specbatch_pool_create(&pool, target, NULL, &options), SPECBATCH_E_INVALID,
                    "draft_min_prob");
        CHECK_ERROR(specbatch_pool_bytes(&bytes, target, NULL, &options), SPECBATCH_E_INVALID,
                    "draft_min_prob");
    }
    options.draft_min_prob = 0.0f;
    options.reserved = 1;
    CHECK_ERROR(specbatch_pool_create(&pool, target, NULL, &options), SPECBATCH_E_OPTIONS,
                "reserved");
    CHECK(pool == NULL);
}

TEST_BEGIN
if (specbatch_model_open(&target, TARGET, NULL)) {
    printf("FAIL the model does not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_lists_are_refused);
RUN(test_a_source_is_asked_for_rows_that_none_before_it_serves);
RUN(test_requests_choose_their_sources);
RUN(test_sources_that_are_not_there_are_refused);
RUN(test_a_round_that_fails_behind_a_model_is_repeated);
RUN(test_a_model_that_cannot_read_a_token_leaves_the_row_to_others);
RUN(test_a_draft_that_is_not_sure_stops);
RUN(test_probabilities_are_refused);
specbatch_model_close(target);
TEST_END
