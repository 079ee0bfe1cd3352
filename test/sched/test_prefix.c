/*
 * Hits change no bit: requests that find a part of their prompt in the prefix cache get the tokens
 * and log-probabilities that plain decoding gives when it computes everything. (How much they find
 * is in test_prefix_use.c.)
 */
#include "sched/policies.h"
#include "support/pool_check.h"
#include "support/prefix_pool.h"

/* ------------------------------------------------------------------ requests */

/* A prompt: all that request `after` had, answer included, and then the first n tokens of a text.
 * after: an earlier index, or -1. */
struct ask {
    int32_t after, text, n;
};

static const struct ask asks[] = {
    {-1, 0, 100}, {-1, 0, 100}, {-1, 1, 100},                          /* parts in a block */
    {-1, 0, 64},  {-1, 0, 65},  {-1, 0, 33},  {-1, 0, 32}, {-1, 0, 1}, /* k blocks, and one more */
    {-1, 2, 97},  {-1, 0, 250}, {0, 3, 40},   {10, 3, 33}, {-1, 0, 250}, /* 10, 11: a talk */
};
enum { N_ASKS = (int)(sizeof asks / sizeof *asks) };

static struct answer {
    int32_t n_prompt, prompt[LONGEST + 60];
    int32_t tokens[MAX_NEW];
    float logprobs[MAX_NEW];
} cold[N_ASKS];

/* What plain decoding at batch 1 gives for each of the asks, computed from the beginning. */
static void answer_all(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);

    options.batch = 1;
    options.max_len = 300;
    for (int i = 0; i < N_ASKS; i++) {
        struct answer *a = &cold[i];
        specbatch_request request;
        specbatch_result *result;
        specbatch_pool *pool;

        a->n_prompt = 0;
        if (asks[i].after >= 0) {
            const struct answer *before = &cold[asks[i].after];
            a->n_prompt = before->n_prompt + MAX_NEW;
            memcpy(a->prompt, before->prompt, sizeof a->prompt);
            memcpy(a->prompt + before->n_prompt, before->tokens, sizeof before->tokens);
        }
        write_text(a->prompt + a->n_prompt, asks[i].text, asks[i].n);
        a->n_prompt += asks[i].n;
        request = request_of(a->prompt, a->n_prompt);
        CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        CHECK((result = take(pool)) != NULL);
        memcpy(a->tokens, specbatch_result_tokens(result, NULL), sizeof a->tokens);
        memcpy(a->logprobs, specbatch_result_logprobs(result, NULL), sizeof a->logprobs);
        specbatch_result_free(result);
        specbatch_pool_free(pool);
    }
}

/* ------------------------------------------------------------------ the bits */

static void check_result(const specbatch_result *result)
{
    const struct answer *a = &cold[(specbatch_result_id(result) - 1) % N_ASKS];
    size_t n;

    CHECK_MEM(specbatch_result_tokens(result, &n), a->tokens, sizeof a->tokens);
    CHECK_INT(n, MAX_NEW);
    CHECK_MEM(specbatch_result_logprobs(result, NULL), a->logprobs, sizeof a->logprobs);
}

/* All asks at once, twice. */
static void check_pool(specbatch_pool *pool, int32_t n_blocks)
{
    specbatch_result *result;
    size_t active = 1;

    CHECK(pool != NULL);
    CHECK_INT(sb_prefix_n_blocks(&pool->prefix), n_blocks);
    for (int wave = 0; wave < 2; wave++) {
        for (int i = 0; i < N_ASKS; i++) {
            const specbatch_request request = request_of(cold[i].prompt, cold[i].n_prompt);
            CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        }
        for (active = 1; active > 0;) {
            CHECK_OK(specbatch_pool_step(pool, &active));
            CHECK_OK(pool_check(pool));
        }
        while ((result = take(pool)) != NULL && !sbtest_failed_now) {
            check_result(result);
            specbatch_result_free(result);
        }
    }
    CHECK(n_blocks == 1 || stat(pool, "prefix_hits") > 0);
    CHECK(stat(pool, "prefix_blocks") > 0);
    CHECK(stat(pool, "prefix_blocks") - stat(pool, "prefix_evictions") <= (uint64_t)n_blocks);
}

/* Under every policy, with caches that hold nearly nothing, a part and everything. */
static void check_policies(specbatch_draft *with)
{
    static const int32_t sizes[] = {1, 5, 64};

    for (int32_t policy = 0; policy < sb_policy_count(); policy++)
        for (int i = 0; i < 3 && !sbtest_failed_now; i++) {
            const uint32_t flags = i == 1 ? SPECBATCH_POOL_EQSPEC_REPLACE : 0;
            specbatch_pool *pool = create(policy, flags, with, sizes[i]);
            check_pool(pool, sizes[i]);
            if (sbtest_failed_now)
                printf("     %s, %d blocks\n", sb_policy_at(policy)->name, sizes[i]);
            specbatch_pool_free(pool);
        }
}

static void test_hits_change_no_bit_without_a_draft(void)
{
    check_policies(NULL);
}

static void test_hits_change_no_bit_with_a_model(void)
{
    check_policies(draft);
}

static void test_hits_change_no_bit_with_the_target_itself(void)
{
    specbatch_draft *self = draft_of(target);

    check_policies(self);
    specbatch_draft_release(self);
}

static void test_hits_change_no_bit_with_ngrams(void)
{
    specbatch_draft *ngrams = NULL;

    CHECK_OK(specbatch_draft_from_ngrams(&ngrams, NULL));
    check_policies(ngrams);
    specbatch_draft_release(ngrams);
}

/* Proposes what follows by counting. */
static int32_t count_on(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++)
        for (; rows[b]->n_out < rows[b]->k; rows[b]->n_out++)
            rows[b]->out[rows[b]->n_out] = (rows[b]->n_out + (int32_t)rows[b]->n_tokens) % VOCAB;
    return 0;
}

static void test_hits_change_no_bit_with_a_callback(void)
{
    const specbatch_draft_ops ops = only_propose(count_on, NULL);
    specbatch_draft *counts = NULL;

    CHECK_OK(specbatch_draft_from_ops(&counts, &ops));
    check_policies(counts);
    specbatch_draft_release(counts);
}

/* --------------------------------------------------------------------- spans */

static void check_without_a_draft(void)
{
    answer_all();
    check_policies(NULL);
}

static void test_hits_change_no_bit_with_spans(void)
{
    with_spans(64, check_without_a_draft);
}

/* A block may then begin in a span and end outside. */
static void test_hits_change_no_bit_with_spans_of_broken_blocks(void)
{
    with_spans(48, check_without_a_draft);
}

TEST_BEGIN
if (open_pair()) {
    printf("FAIL the models do not open: %s\n", specbatch_last_error());
    return 1;
}
answer_all();
RUN(test_hits_change_no_bit_without_a_draft);
RUN(test_hits_change_no_bit_with_a_model);
RUN(test_hits_change_no_bit_with_the_target_itself);
RUN(test_hits_change_no_bit_with_ngrams);
RUN(test_hits_change_no_bit_with_a_callback);
RUN(test_hits_change_no_bit_with_spans);
RUN(test_hits_change_no_bit_with_spans_of_broken_blocks);
close_pair();
TEST_END
