/*
 * The layout of every public struct and the value of every public constant: callers have been
 * compiled with these. The compiler checks them, so a change that moves anything stops the build of
 * this file. Appending a field changes a sizeof here and nothing else; docs/abi.md says when that
 * is allowed.
 */
#include <stddef.h>

#include "sbtest.h"

#if defined(__LP64__)

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)

SIZE(specbatch_model_options, 112);
AT(specbatch_model_options, struct_size, 0);
AT(specbatch_model_options, device, 8);
AT(specbatch_model_options, compute, 12);
AT(specbatch_model_options, simd, 16);
AT(specbatch_model_options, device_index, 20);
AT(specbatch_model_options, alloc, 24);
AT(specbatch_model_options, free, 32);
AT(specbatch_model_options, alloc_user, 40);
AT(specbatch_model_options, log, 48);
AT(specbatch_model_options, log_user, 56);
AT(specbatch_model_options, cuda_module, 64);
AT(specbatch_model_options, progress, 72);
AT(specbatch_model_options, progress_user, 80);
AT(specbatch_model_options, kv, 88);
AT(specbatch_model_options, weights, 92);
AT(specbatch_model_options, plan_file, 96);
AT(specbatch_model_options, prefill, 104);
AT(specbatch_model_options, reserved, 108);

SIZE(specbatch_message, 24);
AT(specbatch_message, role, 0);
AT(specbatch_message, content, 8);
AT(specbatch_message, content_length, 16);

SIZE(specbatch_chat_options, 24);
AT(specbatch_chat_options, struct_size, 0);
AT(specbatch_chat_options, format, 8);
AT(specbatch_chat_options, flags, 12);
AT(specbatch_chat_options, date, 16);
AT(specbatch_chat_options, effort, 20);

SIZE(specbatch_ngram_options, 16);
AT(specbatch_ngram_options, struct_size, 0);
AT(specbatch_ngram_options, max_match, 8);
AT(specbatch_ngram_options, min_match, 12);

SIZE(specbatch_table_options, 24);
AT(specbatch_table_options, struct_size, 0);
AT(specbatch_table_options, max_match, 8);
AT(specbatch_table_options, min_match, 12);
AT(specbatch_table_options, min_count, 16);
AT(specbatch_table_options, reserved, 20);

SIZE(specbatch_draft_row, 56);
AT(specbatch_draft_row, struct_size, 0);
AT(specbatch_draft_row, request_id, 8);
AT(specbatch_draft_row, request_user, 16);
AT(specbatch_draft_row, tokens, 24);
AT(specbatch_draft_row, n_tokens, 32);
AT(specbatch_draft_row, out, 40);
AT(specbatch_draft_row, k, 48);
AT(specbatch_draft_row, n_out, 52);

SIZE(specbatch_draft_ops, 40);
AT(specbatch_draft_ops, struct_size, 0);
AT(specbatch_draft_ops, propose, 8);
AT(specbatch_draft_ops, retire, 16);
AT(specbatch_draft_ops, release, 24);
AT(specbatch_draft_ops, user, 32);

SIZE(specbatch_pool_options, 120);
AT(specbatch_pool_options, struct_size, 0);
AT(specbatch_pool_options, policy, 8);
AT(specbatch_pool_options, batch, 12);
AT(specbatch_pool_options, window, 16);
AT(specbatch_pool_options, draft_len, 20);
AT(specbatch_pool_options, max_len, 24);
AT(specbatch_pool_options, prefill_chunk, 28);
AT(specbatch_pool_options, n_threads, 32);
AT(specbatch_pool_options, flags, 36);
AT(specbatch_pool_options, queue_max, 40);
AT(specbatch_pool_options, budget_bytes, 48);
AT(specbatch_pool_options, alloc, 56);
AT(specbatch_pool_options, free, 64);
AT(specbatch_pool_options, alloc_user, 72);
AT(specbatch_pool_options, log, 80);
AT(specbatch_pool_options, log_user, 88);
AT(specbatch_pool_options, cache_columns, 96);
AT(specbatch_pool_options, prefix_bytes, 104);
AT(specbatch_pool_options, draft_min_prob, 112);
AT(specbatch_pool_options, reserved, 116);

SIZE(specbatch_request, 136);
AT(specbatch_request, struct_size, 0);
AT(specbatch_request, ids, 8);
AT(specbatch_request, n_ids, 16);
AT(specbatch_request, text, 24);
AT(specbatch_request, text_flags, 32);
AT(specbatch_request, flags, 36);
AT(specbatch_request, max_new, 40);
AT(specbatch_request, draft_len, 44);
AT(specbatch_request, stop_ids, 48);
AT(specbatch_request, n_stop_ids, 56);
AT(specbatch_request, user, 64);
AT(specbatch_request, text_length, 72);
AT(specbatch_request, sampling, 80);
AT(specbatch_request, stops, 88);
AT(specbatch_request, mask, 96);
AT(specbatch_request, answers, 104);
AT(specbatch_request, min_new, 112);
AT(specbatch_request, top_logprobs, 116);
AT(specbatch_request, priority, 120);
AT(specbatch_request, draft_sources, 124);
AT(specbatch_request, deadline_ns, 128);

SIZE(specbatch_sampling, 80);
AT(specbatch_sampling, struct_size, 0);
AT(specbatch_sampling, seed, 8);
AT(specbatch_sampling, temperature, 16);
AT(specbatch_sampling, top_k, 20);
AT(specbatch_sampling, top_p, 24);
AT(specbatch_sampling, typical_p, 28);
AT(specbatch_sampling, min_p, 32);
AT(specbatch_sampling, repetition_penalty, 36);
AT(specbatch_sampling, presence_penalty, 40);
AT(specbatch_sampling, frequency_penalty, 44);
AT(specbatch_sampling, penalty_window, 48);
AT(specbatch_sampling, flags, 52);
AT(specbatch_sampling, bias_ids, 56);
AT(specbatch_sampling, bias, 64);
AT(specbatch_sampling, n_bias, 72);

SIZE(specbatch_stops, 32);
AT(specbatch_stops, struct_size, 0);
AT(specbatch_stops, strings, 8);
AT(specbatch_stops, lengths, 16);
AT(specbatch_stops, n_strings, 24);

SIZE(specbatch_mask_row, 72);
AT(specbatch_mask_row, struct_size, 0);
AT(specbatch_mask_row, request_id, 8);
AT(specbatch_mask_row, request_user, 16);
AT(specbatch_mask_row, tokens, 24);
AT(specbatch_mask_row, n_tokens, 32);
AT(specbatch_mask_row, n_prompt, 40);
AT(specbatch_mask_row, n_answer, 48);
AT(specbatch_mask_row, allowed, 56);
AT(specbatch_mask_row, n_words, 64);

SIZE(specbatch_mask, 24);
AT(specbatch_mask, struct_size, 0);
AT(specbatch_mask, allow, 8);
AT(specbatch_mask, user, 16);

SIZE(specbatch_answers, 16);
AT(specbatch_answers, struct_size, 0);
AT(specbatch_answers, n, 8);
AT(specbatch_answers, best_of, 12);

SIZE(specbatch_request_state, 64);
AT(specbatch_request_state, struct_size, 0);
AT(specbatch_request_state, state, 8);
AT(specbatch_request_state, finish, 12);
AT(specbatch_request_state, n_prompt, 16);
AT(specbatch_request_state, n_filled, 24);
AT(specbatch_request_state, n_generated, 32);
AT(specbatch_request_state, time_queued_ns, 40);
AT(specbatch_request_state, time_first_token_ns, 48);
AT(specbatch_request_state, time_total_ns, 56);

SIZE(specbatch_event, 64);
AT(specbatch_event, struct_size, 0);
AT(specbatch_event, id, 8);
AT(specbatch_event, user, 16);
AT(specbatch_event, ids, 24);
AT(specbatch_event, n_ids, 32);
AT(specbatch_event, text, 40);
AT(specbatch_event, text_length, 48);
AT(specbatch_event, finish, 56);
AT(specbatch_event, status, 60);

SIZE(specbatch_audit_report, 40);
AT(specbatch_audit_report, struct_size, 0);
AT(specbatch_audit_report, equal, 8);
AT(specbatch_audit_report, token_expected, 12);
AT(specbatch_audit_report, token_got, 16);
AT(specbatch_audit_report, margin, 20);
AT(specbatch_audit_report, first_divergence, 24);
AT(specbatch_audit_report, n_tokens, 32);

#endif

#define IS(constant, value) _Static_assert((constant) == (value), #constant)

IS(SPECBATCH_OK, 0);
IS(SPECBATCH_E_INVALID, -1);
IS(SPECBATCH_E_OPTIONS, -2);
IS(SPECBATCH_E_TOO_LONG, -3);
IS(SPECBATCH_E_TOKEN, -4);
IS(SPECBATCH_E_BUFFER, -5);
IS(SPECBATCH_E_NOT_FOUND, -6);
IS(SPECBATCH_E_EMPTY, -7);
IS(SPECBATCH_E_QUEUE_FULL, -8);
IS(SPECBATCH_E_BUSY, -9);
IS(SPECBATCH_E_VOCAB, -10);
IS(SPECBATCH_E_NOMEM, -20);
IS(SPECBATCH_E_BUDGET, -21);
IS(SPECBATCH_E_IO, -30);
IS(SPECBATCH_E_FORMAT, -31);
IS(SPECBATCH_E_UNSUPPORTED, -32);
IS(SPECBATCH_E_NO_TOKENIZER, -33);
IS(SPECBATCH_E_CANCELLED, -40);
IS(SPECBATCH_E_NAN, -41);
IS(SPECBATCH_E_INTERRUPTED, -42);
IS(SPECBATCH_E_NO_CHOICE, -43);
IS(SPECBATCH_E_NO_DEVICE, -50);
IS(SPECBATCH_E_DEVICE, -60);
IS(SPECBATCH_E_INTERNAL, -61);
IS(SPECBATCH_ERROR_MAX, 256);
IS(SPECBATCH_LOG_ERROR, 1);
IS(SPECBATCH_LOG_WARN, 2);
IS(SPECBATCH_LOG_INFO, 3);
IS(SPECBATCH_DEVICE_CPU, 0);
IS(SPECBATCH_DEVICE_CUDA, 1);
IS(SPECBATCH_COMPUTE_AUTO, 0);
IS(SPECBATCH_COMPUTE_BF16, 1);
IS(SPECBATCH_COMPUTE_F32, 2);
IS(SPECBATCH_COMPUTE_SPLIT, 3);
IS(SPECBATCH_COMPUTE_INT8, 4);
IS(SPECBATCH_SIMD_AUTO, 0);
IS(SPECBATCH_SIMD_SCALAR, 1);
IS(SPECBATCH_SIMD_AVX2, 2);
IS(SPECBATCH_SIMD_AVX512, 3);
IS(SPECBATCH_SIMD_AMX, 4);

IS(SPECBATCH_KV_AUTO, 0);
IS(SPECBATCH_KV_F32, 1);
IS(SPECBATCH_KV_BF16, 2);
IS(SPECBATCH_KV_F16, 3);
IS(SPECBATCH_WEIGHTS_AUTO, 0);
IS(SPECBATCH_WEIGHTS_Q8, 1);
IS(SPECBATCH_WEIGHTS_Q4, 2);
IS(SPECBATCH_PREFILL_OWN, 0);
IS(SPECBATCH_PREFILL_CUDNN, 1);
IS(SPECBATCH_TEXT_NO_BOS, 1);
IS(SPECBATCH_TEXT_PLAIN_SPECIAL, 2);
IS(SPECBATCH_TEXT_KEEP_SPECIAL, 4);
IS(SPECBATCH_CHAT_AUTO, 0);
IS(SPECBATCH_CHAT_RAW, 1);
IS(SPECBATCH_CHAT_VICUNA, 2);
IS(SPECBATCH_CHAT_QWEN3, 3);
IS(SPECBATCH_CHAT_GLM4, 4);
IS(SPECBATCH_CHAT_GLMZ1, 5);
IS(SPECBATCH_CHAT_LLAMA3, 6);
IS(SPECBATCH_CHAT_CHATML, 7);
IS(SPECBATCH_CHAT_QWEN2, 8);
IS(SPECBATCH_CHAT_QWEN2_5, 9);
IS(SPECBATCH_CHAT_PHI3, 10);
IS(SPECBATCH_CHAT_PHI3_5, 11);
IS(SPECBATCH_CHAT_PHI4, 12);
IS(SPECBATCH_CHAT_GEMMA2, 13);
IS(SPECBATCH_CHAT_GEMMA3, 14);
IS(SPECBATCH_CHAT_MISTRAL_V1, 15);
IS(SPECBATCH_CHAT_MISTRAL_V3, 16);
IS(SPECBATCH_CHAT_MISTRAL_V3_TEKKEN, 17);
IS(SPECBATCH_CHAT_MISTRAL_V7, 18);
IS(SPECBATCH_CHAT_PHI4_MINI, 19);
IS(SPECBATCH_CHAT_GLM4_5, 20);
IS(SPECBATCH_CHAT_LLAMA3_1, 21);
IS(SPECBATCH_CHAT_LLAMA3_2, 22);
IS(SPECBATCH_CHAT_GPT_OSS, 23);
IS(SPECBATCH_CHAT_DEEPSEEK_R1, 24);
IS(SPECBATCH_EFFORT_DEFAULT, 0);
IS(SPECBATCH_EFFORT_LOW, 1);
IS(SPECBATCH_EFFORT_MEDIUM, 2);
IS(SPECBATCH_EFFORT_HIGH, 3);
IS(SPECBATCH_CHAT_NO_THINK, 1);
IS(SPECBATCH_CHAT_NO_ANSWER_PROMPT, 2);
IS(SPECBATCH_CHAT_PARSE_SPECIAL, 4);
IS(SPECBATCH_POLICY_RAGGED, 0);
IS(SPECBATCH_POLICY_PLAIN, 1);
IS(SPECBATCH_POLICY_EQSPEC, 2);
IS(SPECBATCH_POLICY_EXSPEC, 3);
IS(SPECBATCH_POLICY_ROLLBACK, 4);
IS(SPECBATCH_POOL_SORT_BY_LENGTH, 1);
IS(SPECBATCH_POOL_EQSPEC_REPLACE, 2);
IS(SPECBATCH_POOL_FIXED_K, 4);
IS(SPECBATCH_POOL_GROW_SLOTS, 8);
IS(SPECBATCH_REQUEST_IGNORE_EOS, 1);
IS(SPECBATCH_REQUEST_LOGPROBS, 2);
IS(SPECBATCH_REQUEST_PROMPT_LOGPROBS, 4);
IS(SPECBATCH_REQUEST_FILTERED_LOGPROBS, 8);
IS(SPECBATCH_SAMPLING_SPARE_PROMPT, 1);
IS(SPECBATCH_STATE_QUEUED, 1);
IS(SPECBATCH_STATE_FILLING, 2);
IS(SPECBATCH_STATE_DECODING, 3);
IS(SPECBATCH_STATE_FINISHED, 4);
IS(SPECBATCH_FINISH_EOS, 1);
IS(SPECBATCH_FINISH_STOP, 2);
IS(SPECBATCH_FINISH_LENGTH, 3);
IS(SPECBATCH_FINISH_CANCELLED, 4);
IS(SPECBATCH_FINISH_ERROR, 5);
IS(SPECBATCH_FINISH_DEADLINE, 6);

/* What may not be changed may be asked for the bytes of a pool. */
_Static_assert(_Generic(&specbatch_pool_bytes,
                        int32_t (*)(uint64_t *, const specbatch_model *, const specbatch_draft *,
                                    const specbatch_pool_options *) : 1,
                        default : 0),
               "specbatch_pool_bytes takes const handles");

static void test_layout_and_constants(void)
{
#if !defined(__LP64__)
    SKIP("layouts are recorded for LP64 machines only; constants were checked");
#endif
}

/* The INIT macros give what the init functions give. */
static void test_init_macros(void)
{
    const specbatch_model_options model = SPECBATCH_MODEL_OPTIONS_INIT;
    const specbatch_pool_options pool = SPECBATCH_POOL_OPTIONS_INIT;
    const specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_model_options model_twin;
    specbatch_pool_options pool_twin;
    specbatch_request request_twin;

    memset(&model_twin, 0x5a, sizeof model_twin);
    memset(&pool_twin, 0x5a, sizeof pool_twin);
    memset(&request_twin, 0x5a, sizeof request_twin);
    CHECK_OK(specbatch_model_options_init(&model_twin, sizeof model_twin));
    CHECK_OK(specbatch_pool_options_init(&pool_twin, sizeof pool_twin));
    CHECK_OK(specbatch_request_init(&request_twin, sizeof request_twin));
    CHECK_MEM(&model, &model_twin, sizeof model);
    CHECK_MEM(&pool, &pool_twin, sizeof pool);
    CHECK_MEM(&request, &request_twin, sizeof request);
}

static void test_version(void)
{
    char text[40];

    CHECK_INT(specbatch_version(), SPECBATCH_VERSION_MAJOR * 10000 + SPECBATCH_VERSION_MINOR * 100 +
                                       SPECBATCH_VERSION_PATCH);
    CHECK_INT(SPECBATCH_VERSION_NUMBER, specbatch_version());
    snprintf(text, sizeof text, "%d.%d.%d", SPECBATCH_VERSION_MAJOR, SPECBATCH_VERSION_MINOR,
             SPECBATCH_VERSION_PATCH);
    CHECK_STR(specbatch_version_string(), text);
    CHECK_INT(specbatch_abi_version(), SPECBATCH_SOVERSION);
}

static void test_policies_by_number_and_name(void)
{
    CHECK_STR(specbatch_policy_name(SPECBATCH_POLICY_RAGGED), "ragged");
    CHECK_STR(specbatch_policy_name(SPECBATCH_POLICY_PLAIN), "plain");
    CHECK_STR(specbatch_policy_name(SPECBATCH_POLICY_EQSPEC), "eqspec");
    CHECK_STR(specbatch_policy_name(SPECBATCH_POLICY_EXSPEC), "exspec");
    CHECK_STR(specbatch_policy_name(SPECBATCH_POLICY_ROLLBACK), "rollback");
    for (int32_t i = 0; i < specbatch_policy_count(); i++)
        CHECK_INT(specbatch_policy_by_name(specbatch_policy_name(i)), i);
    CHECK(!specbatch_policy_name(-1) && !specbatch_policy_name(specbatch_policy_count()));
    CHECK_ERROR(specbatch_policy_by_name("Plain"), SPECBATCH_E_NOT_FOUND,
                "no policy is called \"Plain\"; there are ragged, plain, eqspec, exspec, rollback");
    CHECK(specbatch_policy_by_name(NULL) < 0);
}

static void test_names_of_ends(void)
{
    static const char *const names[] = {"unknown",   "eos",   "stop",     "length",
                                        "cancelled", "error", "deadline", "unknown"};

    CHECK_STR(specbatch_finish_name(-1), "unknown");
    for (int32_t i = 0; i <= SPECBATCH_FINISH_DEADLINE + 1; i++)
        CHECK_STR(specbatch_finish_name(i), names[i]);
}

TEST_BEGIN
RUN(test_layout_and_constants);
RUN(test_init_macros);
RUN(test_version);
RUN(test_policies_by_number_and_name);
RUN(test_names_of_ends);
TEST_END
