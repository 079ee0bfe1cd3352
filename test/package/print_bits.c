/*
 * Prints what the library computes, bit for bit, so that builds of it can be compared by diff
 * (check_aarch64.sh):
 *
 *     print_bits TARGET_DIR DRAFT_DIR auto|scalar [q8|q4]
 *                                     the SIMD level; what weights are quantised to
 *
 * For each compute class: the logits behind every token of a prompt, which one pass computes; then
 * tokens and log-probabilities of requests, under every policy.
 */
#include "support/small_pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/runner.h"
#include "port.h"
#include "status.h"

#define REQUESTS 6

static void print_floats(const char *what, const float *values, int64_t n)
{
    printf("%s", what);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        printf(" %08" PRIx32, bits);
    }
    printf("\n");
}

/* One pass over the prompt. The CPU's device memory is ordinary memory, so the logits are read
 * where they are. */
static int32_t print_logits(specbatch_model *model)
{
    const struct sb_runner_limits limits = {.max_tokens = N_PROMPT,
                                            .max_seqs = 1,
                                            .max_out = N_PROMPT,
                                            .n_passes = 1,
                                            .n_slots = 1,
                                            .cap = N_PROMPT,
                                            .n_columns = N_PROMPT,
                                            .n_threads = 2};
    const int64_t vocab = model->config.vocab;
    const struct sb_mem mem = {NULL, NULL, NULL};
    struct sb_runner runner = {0};
    struct sb_fp_env env;
    int32_t rc, seq;

    sb_port_fp_enter(&env);
    SB_TRY(sb_runner_create(&runner, model, &mem, &limits, NULL));
    sb_pass_begin(&runner, 0);
    seq = sb_pass_add_seq(&runner, 0, N_PROMPT, 0);
    for (int32_t p = 0; p < N_PROMPT; p++)
        sb_pass_add_token(&runner, seq, p, p, p);
    SB_TRY(sb_pass_issue(&runner, 0, prompt));
    SB_TRY(runner.backend->exec_sync(runner.exec));
    for (int32_t p = 0; p < N_PROMPT; p++)
        print_floats("logits", runner.logits + p * vocab, vocab);
    rc = SPECBATCH_OK;
done:
    sb_runner_free(&runner);
    sb_port_fp_leave(&env);
    return rc;
}

static void print_result(const specbatch_result *result)
{
    size_t n;
    const int32_t *tokens = specbatch_result_tokens(result, &n);

    printf("tokens");
    for (size_t i = 0; i < n; i++)
        printf(" %" PRId32, tokens[i]);
    print_floats("\nlogprobs", specbatch_result_logprobs(result, &n), (int64_t)n);
}

/* Requests of different lengths, of which every second one samples; their results are printed in
 * the order in which they came. */
static int32_t print_requests(int32_t policy)
{
    specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;
    const specbatch_pool_options options = small_options(policy);
    specbatch_request request = small_request(24);
    specbatch_result *results[REQUESTS] = {NULL}, *result;
    specbatch_pool *pool = NULL;
    int32_t rc;

    request.flags |= SPECBATCH_REQUEST_LOGPROBS;
    sampling.seed = 7;
    sampling.temperature = 0.9f;
    sampling.top_p = 0.95f;
    sampling.typical_p = 0.9f;
    sampling.frequency_penalty = 0.5f;
    SB_TRY(specbatch_pool_create(&pool, target, draft, &options));
    for (int i = 0; i < REQUESTS; i++) {
        request.ids = prompt + i;
        request.n_ids = (size_t)(N_PROMPT - i);
        request.sampling = i % 2 ? &sampling : NULL;
        SB_TRY(specbatch_pool_submit(pool, &request, NULL));
    }
    SB_TRY(run_to_end(pool));
    while ((result = take(pool)) != NULL)
        results[specbatch_result_id(result) - 1] = result;
    printf("policy %" PRId32 "\n", policy);
    for (int i = 0; i < REQUESTS; i++)
        print_result(results[i]);
    rc = SPECBATCH_OK;
done:
    for (int i = 0; i < REQUESTS; i++)
        specbatch_result_free(results[i]);
    specbatch_pool_free(pool);
    return rc;
}

static int32_t print_class(char **argv, int32_t compute)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *small = NULL;
    int32_t rc;

    target = NULL;
    draft = NULL;
    options.compute = compute;
    options.simd = strcmp(argv[3], "scalar") == 0 ? SPECBATCH_SIMD_SCALAR : SPECBATCH_SIMD_AUTO;
    options.weights = !argv[4]                     ? SPECBATCH_WEIGHTS_AUTO
                      : strcmp(argv[4], "q8") == 0 ? SPECBATCH_WEIGHTS_Q8
                                                   : SPECBATCH_WEIGHTS_Q4;
    printf("compute class %" PRId32 "\n", compute);
    SB_TRY(specbatch_model_open(&target, argv[1], &options));
    SB_TRY(specbatch_model_open(&small, argv[2], &options));
    SB_TRY(specbatch_draft_from_model(&draft, small));
    SB_TRY(print_logits(target));
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++)
        SB_TRY(print_requests(policy));
    rc = SPECBATCH_OK;
done:
    specbatch_draft_release(draft);
    specbatch_model_close(small);
    specbatch_model_close(target);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: print_bits TARGET_DIR DRAFT_DIR auto|scalar [q8|q4]\n");
        return 2;
    }
    if (print_class(argv, SPECBATCH_COMPUTE_F32) == SPECBATCH_OK &&
        print_class(argv, SPECBATCH_COMPUTE_BF16) == SPECBATCH_OK &&
        print_class(argv, SPECBATCH_COMPUTE_SPLIT) == SPECBATCH_OK &&
        print_class(argv, SPECBATCH_COMPUTE_INT8) == SPECBATCH_OK)
        return 0;
    fprintf(stderr, "print_bits: %s\n", specbatch_last_error());
    return 1;
}
