#ifndef SPECBATCH_H
#define SPECBATCH_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#define SPECBATCH_API __attribute__((visibility("default")))
#else
#define SPECBATCH_API
#endif
#define SPECBATCH_VERSION_MAJOR 0
#define SPECBATCH_VERSION_MINOR 2
#define SPECBATCH_VERSION_PATCH 0
#define SPECBATCH_VERSION_NUMBER \
    (SPECBATCH_VERSION_MAJOR * 10000 + SPECBATCH_VERSION_MINOR * 100 + SPECBATCH_VERSION_PATCH)
#define SPECBATCH_SOVERSION 1
SPECBATCH_API int32_t specbatch_version(void);
SPECBATCH_API const char *specbatch_version_string(void);
SPECBATCH_API int32_t specbatch_abi_version(void);
SPECBATCH_API int32_t specbatch_has(const char *feature);
enum {
    SPECBATCH_OK = 0,
    SPECBATCH_E_INVALID = -1,
    SPECBATCH_E_OPTIONS = -2,
    SPECBATCH_E_TOO_LONG = -3,
    SPECBATCH_E_TOKEN = -4,
    SPECBATCH_E_BUFFER = -5,
    SPECBATCH_E_NOT_FOUND = -6,
    SPECBATCH_E_EMPTY = -7,
    SPECBATCH_E_QUEUE_FULL = -8,
    SPECBATCH_E_BUSY = -9,
    SPECBATCH_E_VOCAB = -10,
    SPECBATCH_E_NOMEM = -20,
    SPECBATCH_E_BUDGET = -21,
    SPECBATCH_E_IO = -30,
    SPECBATCH_E_FORMAT = -31,
    SPECBATCH_E_UNSUPPORTED = -32,
    SPECBATCH_E_NO_TOKENIZER = -33,
    SPECBATCH_E_CANCELLED = -40,
    SPECBATCH_E_NAN = -41,
    SPECBATCH_E_INTERRUPTED = -42,
    SPECBATCH_E_NO_CHOICE = -43,
    SPECBATCH_E_NO_DEVICE = -50,
    SPECBATCH_E_DEVICE = -60,
    SPECBATCH_E_INTERNAL = -61
};
#define SPECBATCH_ERROR_MAX 256
SPECBATCH_API const char *specbatch_status_name(int32_t status);
SPECBATCH_API int32_t specbatch_status_is_fatal(int32_t status);
SPECBATCH_API const char *specbatch_last_error(void);
typedef void *(*specbatch_alloc_fn)(void *user, size_t size, size_t align);
typedef void (*specbatch_free_fn)(void *user, void *ptr, size_t size);
enum { SPECBATCH_LOG_ERROR = 1, SPECBATCH_LOG_WARN = 2, SPECBATCH_LOG_INFO = 3 };
typedef void (*specbatch_log_fn)(void *user, int32_t level, const char *line);
typedef struct specbatch_model specbatch_model;
enum { SPECBATCH_DEVICE_CPU = 0, SPECBATCH_DEVICE_CUDA = 1 };
enum {
    SPECBATCH_COMPUTE_AUTO = 0,
    SPECBATCH_COMPUTE_BF16 = 1,
    SPECBATCH_COMPUTE_F32 = 2,
    SPECBATCH_COMPUTE_SPLIT = 3,
    SPECBATCH_COMPUTE_INT8 = 4
};
enum {
    SPECBATCH_SIMD_AUTO = 0,
    SPECBATCH_SIMD_SCALAR = 1,
    SPECBATCH_SIMD_AVX2 = 2,
    SPECBATCH_SIMD_AVX512 = 3,
    SPECBATCH_SIMD_AMX = 4
};
enum {
    SPECBATCH_KV_AUTO = 0,
    SPECBATCH_KV_F32 = 1,
    SPECBATCH_KV_BF16 = 2,
    SPECBATCH_KV_F16 = 3
};
enum {
    SPECBATCH_WEIGHTS_AUTO = 0,
    SPECBATCH_WEIGHTS_Q8 = 1,
    SPECBATCH_WEIGHTS_Q4 = 2
};
enum {
    SPECBATCH_PREFILL_OWN = 0,
    SPECBATCH_PREFILL_CUDNN = 1
};
typedef int32_t (*specbatch_progress_fn)(void *user, uint64_t done, uint64_t total);
typedef struct specbatch_model_options {
    size_t struct_size;
    int32_t device;
    int32_t compute;
    int32_t simd;
    int32_t device_index;
    specbatch_alloc_fn alloc;
    specbatch_free_fn free;
    void *alloc_user;
    specbatch_log_fn log;
    void *log_user;
    const char *cuda_module;
    specbatch_progress_fn progress;
    void *progress_user;
    int32_t kv;
    int32_t weights;
    const char *plan_file;
    int32_t prefill;
    int32_t reserved;
} specbatch_model_options;
#define SPECBATCH_MODEL_OPTIONS_INIT                                                           \
    {                                                                                          \
        sizeof(specbatch_model_options), 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
            NULL, 0, 0, NULL, 0, 0                                                             \
    }
SPECBATCH_API int32_t specbatch_model_options_init(specbatch_model_options *options, size_t size);
SPECBATCH_API int32_t specbatch_model_open(specbatch_model **out, const char *path,
                                           const specbatch_model_options *options);
SPECBATCH_API int32_t specbatch_convert(const char *to, const char *from,
                                        const specbatch_model_options *options);
SPECBATCH_API void specbatch_model_retain(specbatch_model *model);
SPECBATCH_API void specbatch_model_close(specbatch_model *model);
SPECBATCH_API const char *specbatch_model_arch(const specbatch_model *model);
SPECBATCH_API const char *specbatch_model_dtype(const specbatch_model *model);
SPECBATCH_API const char *specbatch_model_fingerprint(const specbatch_model *model);
SPECBATCH_API const char *specbatch_model_digest(const specbatch_model *model);
SPECBATCH_API int32_t specbatch_model_vocab_size(const specbatch_model *model);
SPECBATCH_API int32_t specbatch_model_layers(const specbatch_model *model);
SPECBATCH_API int32_t specbatch_model_context(const specbatch_model *model);
SPECBATCH_API uint64_t specbatch_model_bytes(const specbatch_model *model);
SPECBATCH_API int32_t specbatch_model_has_tokenizer(const specbatch_model *model);
SPECBATCH_API const int32_t *specbatch_model_eos(const specbatch_model *model, size_t *n);
enum {
    SPECBATCH_TEXT_NO_BOS = 1 << 0,
    SPECBATCH_TEXT_PLAIN_SPECIAL = 1 << 1,
    SPECBATCH_TEXT_KEEP_SPECIAL = 1 << 2
};
SPECBATCH_API int32_t specbatch_tokenize(const specbatch_model *model, const char *text,
                                         size_t length, uint32_t flags, int32_t *ids,
                                         size_t capacity, size_t *n);
SPECBATCH_API int32_t specbatch_detokenize(const specbatch_model *model, const int32_t *ids,
                                           size_t n_ids, uint32_t flags, char *buffer,
                                           size_t capacity, size_t *n);
SPECBATCH_API int32_t specbatch_token_text(const specbatch_model *model, int32_t id, char *buffer,
                                           size_t capacity, size_t *n);
enum {
    SPECBATCH_CHAT_AUTO = 0,
    SPECBATCH_CHAT_RAW = 1,
    SPECBATCH_CHAT_VICUNA = 2,
    SPECBATCH_CHAT_QWEN3 = 3,
    SPECBATCH_CHAT_GLM4 = 4,
    SPECBATCH_CHAT_GLMZ1 = 5,
    SPECBATCH_CHAT_LLAMA3 = 6,
    SPECBATCH_CHAT_CHATML = 7,
    SPECBATCH_CHAT_QWEN2 = 8,
    SPECBATCH_CHAT_QWEN2_5 = 9,
    SPECBATCH_CHAT_PHI3 = 10,
    SPECBATCH_CHAT_PHI3_5 = 11,
    SPECBATCH_CHAT_PHI4 = 12,
    SPECBATCH_CHAT_GEMMA2 = 13,
    SPECBATCH_CHAT_GEMMA3 = 14,
    SPECBATCH_CHAT_MISTRAL_V1 = 15,
    SPECBATCH_CHAT_MISTRAL_V3 = 16,
    SPECBATCH_CHAT_MISTRAL_V3_TEKKEN = 17,
    SPECBATCH_CHAT_MISTRAL_V7 = 18,
    SPECBATCH_CHAT_PHI4_MINI = 19,
    SPECBATCH_CHAT_GLM4_5 = 20,
    SPECBATCH_CHAT_LLAMA3_1 = 21,
    SPECBATCH_CHAT_LLAMA3_2 = 22,
    SPECBATCH_CHAT_GPT_OSS = 23,
    SPECBATCH_CHAT_DEEPSEEK_R1 = 24
};
SPECBATCH_API int32_t specbatch_chat_count(void);
SPECBATCH_API const char *specbatch_chat_name(int32_t format);
SPECBATCH_API int32_t specbatch_chat_by_name(const char *name);
SPECBATCH_API int32_t specbatch_model_chat_format(const specbatch_model *model);
typedef struct specbatch_message {
    const char *role;
    const char *content;
    size_t content_length;
} specbatch_message;
enum {
    SPECBATCH_CHAT_NO_THINK = 1 << 0,
    SPECBATCH_CHAT_NO_ANSWER_PROMPT = 1 << 1,
    SPECBATCH_CHAT_PARSE_SPECIAL = 1 << 2
};
enum {
    SPECBATCH_EFFORT_DEFAULT = 0,
    SPECBATCH_EFFORT_LOW = 1,
    SPECBATCH_EFFORT_MEDIUM = 2,
    SPECBATCH_EFFORT_HIGH = 3
};
typedef struct specbatch_chat_options {
    size_t struct_size;
    int32_t format;
    uint32_t flags;
    int32_t date;
    int32_t effort;
} specbatch_chat_options;
#define SPECBATCH_CHAT_OPTIONS_INIT                \
    {                                              \
        sizeof(specbatch_chat_options), 0, 0, 0, 0 \
    }
SPECBATCH_API int32_t specbatch_chat_options_init(specbatch_chat_options *options, size_t size);
SPECBATCH_API int32_t specbatch_chat_tokens(const specbatch_model *model,
                                            const specbatch_chat_options *options,
                                            const specbatch_message *messages, size_t message_size,
                                            size_t n_messages, int32_t *ids, size_t capacity,
                                            size_t *n);
SPECBATCH_API int32_t specbatch_chat_text(const specbatch_model *model,
                                          const specbatch_chat_options *options,
                                          const specbatch_message *messages, size_t message_size,
                                          size_t n_messages, char *buffer, size_t capacity,
                                          size_t *n);
typedef struct specbatch_text_stream specbatch_text_stream;
SPECBATCH_API int32_t specbatch_text_stream_create(specbatch_text_stream **out,
                                                   specbatch_model *model, uint32_t flags);
SPECBATCH_API int32_t specbatch_text_stream_push(specbatch_text_stream *stream, const int32_t *ids,
                                                 size_t n_ids, const char **text, size_t *length);
SPECBATCH_API int32_t specbatch_text_stream_finish(specbatch_text_stream *stream, const char **text,
                                                   size_t *length);
SPECBATCH_API void specbatch_text_stream_free(specbatch_text_stream *stream);
enum {
    SPECBATCH_POLICY_RAGGED = 0,
    SPECBATCH_POLICY_PLAIN = 1,
    SPECBATCH_POLICY_EQSPEC = 2,
    SPECBATCH_POLICY_EXSPEC = 3,
    SPECBATCH_POLICY_ROLLBACK = 4
};
SPECBATCH_API int32_t specbatch_policy_count(void);
SPECBATCH_API const char *specbatch_policy_name(int32_t policy);
SPECBATCH_API int32_t specbatch_policy_by_name(const char *name);
typedef struct specbatch_draft specbatch_draft;
SPECBATCH_API int32_t specbatch_draft_from_model(specbatch_draft **out, specbatch_model *model);
typedef struct specbatch_ngram_options {
    size_t struct_size;
    int32_t max_match;
    int32_t min_match;
} specbatch_ngram_options;
#define SPECBATCH_NGRAM_OPTIONS_INIT          \
    {                                         \
        sizeof(specbatch_ngram_options), 0, 0 \
    }
SPECBATCH_API int32_t specbatch_ngram_options_init(specbatch_ngram_options *options, size_t size);
SPECBATCH_API int32_t specbatch_draft_from_ngrams(specbatch_draft **out,
                                                  const specbatch_ngram_options *options);
SPECBATCH_API int32_t specbatch_draft_from_table(specbatch_draft **out, const char *path);
typedef struct specbatch_table_options {
    size_t struct_size;
    int32_t max_match;
    int32_t min_match;
    int32_t min_count;
    int32_t reserved;
} specbatch_table_options;
#define SPECBATCH_TABLE_OPTIONS_INIT                \
    {                                               \
        sizeof(specbatch_table_options), 0, 0, 0, 0 \
    }
SPECBATCH_API int32_t specbatch_table_options_init(specbatch_table_options *options, size_t size);
SPECBATCH_API int32_t specbatch_table_make(const char *to, const specbatch_model *model,
                                           const int32_t *ids, size_t n_ids,
                                           const specbatch_table_options *options);
typedef struct specbatch_draft_row {
    size_t struct_size;
    uint64_t request_id;
    void *request_user;
    const int32_t *tokens;
    size_t n_tokens;
    int32_t *out;
    int32_t k;
    int32_t n_out;
} specbatch_draft_row;
typedef struct specbatch_draft_ops {
    size_t struct_size;
    int32_t (*propose)(void *user, specbatch_draft_row *const *rows, size_t n_rows);
    void (*retire)(void *user, uint64_t request_id, void *request_user);
    void (*release)(void *user);
    void *user;
} specbatch_draft_ops;
#define SPECBATCH_DRAFT_OPS_INIT                            \
    {                                                       \
        sizeof(specbatch_draft_ops), NULL, NULL, NULL, NULL \
    }
SPECBATCH_API int32_t specbatch_draft_from_ops(specbatch_draft **out,
                                               const specbatch_draft_ops *ops);
SPECBATCH_API int32_t specbatch_draft_from_list(specbatch_draft **out,
                                                specbatch_draft *const *drafts, size_t n_drafts);
SPECBATCH_API void specbatch_draft_retain(specbatch_draft *draft);
SPECBATCH_API void specbatch_draft_release(specbatch_draft *draft);
typedef struct specbatch_pool specbatch_pool;
enum {
    SPECBATCH_POOL_SORT_BY_LENGTH = 1 << 0,
    SPECBATCH_POOL_EQSPEC_REPLACE = 1 << 1,
    SPECBATCH_POOL_FIXED_K = 1 << 2,
    SPECBATCH_POOL_GROW_SLOTS = 1 << 3
};
typedef struct specbatch_pool_options {
    size_t struct_size;
    int32_t policy;
    int32_t batch;
    int32_t window;
    int32_t draft_len;
    int32_t max_len;
    int32_t prefill_chunk;
    int32_t n_threads;
    uint32_t flags;
    uint64_t queue_max;
    uint64_t budget_bytes;
    specbatch_alloc_fn alloc;
    specbatch_free_fn free;
    void *alloc_user;
    specbatch_log_fn log;
    void *log_user;
    uint64_t cache_columns;
    uint64_t prefix_bytes;
    float draft_min_prob;
    int32_t reserved;
} specbatch_pool_options;
#define SPECBATCH_POOL_OPTIONS_INIT                                                           \
    {                                                                                         \
        sizeof(specbatch_pool_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, \
            NULL, 0, 0, 0.0f, 0                                                               \
    }
SPECBATCH_API int32_t specbatch_pool_options_init(specbatch_pool_options *options, size_t size);
SPECBATCH_API int32_t specbatch_pool_bytes(uint64_t *bytes, const specbatch_model *target,
                                           const specbatch_draft *draft,
                                           const specbatch_pool_options *options);
SPECBATCH_API int32_t specbatch_pool_create(specbatch_pool **out, specbatch_model *target,
                                            specbatch_draft *draft,
                                            const specbatch_pool_options *options);
SPECBATCH_API void specbatch_pool_free(specbatch_pool *pool);
SPECBATCH_API int32_t specbatch_pool_pin(specbatch_pool *pool, const int32_t *ids, size_t n_ids,
                                         uint64_t *pin);
SPECBATCH_API int32_t specbatch_pool_unpin(specbatch_pool *pool, uint64_t pin);
enum {
    SPECBATCH_REQUEST_IGNORE_EOS = 1 << 0,
    SPECBATCH_REQUEST_LOGPROBS = 1 << 1,
    SPECBATCH_REQUEST_PROMPT_LOGPROBS = 1 << 2,
    SPECBATCH_REQUEST_FILTERED_LOGPROBS = 1 << 3
};
enum {
    SPECBATCH_SAMPLING_SPARE_PROMPT = 1 << 0
};
typedef struct specbatch_sampling {
    size_t struct_size;
    uint64_t seed;
    float temperature;
    int32_t top_k;
    float top_p;
    float typical_p;
    float min_p;
    float repetition_penalty;
    float presence_penalty;
    float frequency_penalty;
    int32_t penalty_window;
    uint32_t flags;
    const int32_t *bias_ids;
    const float *bias;
    size_t n_bias;
} specbatch_sampling;
#define SPECBATCH_SAMPLING_INIT                                                                 \
    {                                                                                           \
        sizeof(specbatch_sampling), 0, 0.0f, 0, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0, 0, NULL, \
            NULL, 0                                                                             \
    }
typedef struct specbatch_stops {
    size_t struct_size;
    const char *const *strings;
    const size_t *lengths;
    size_t n_strings;
} specbatch_stops;
typedef struct specbatch_mask_row {
    size_t struct_size;
    uint64_t request_id;
    void *request_user;
    const int32_t *tokens;
    size_t n_tokens;
    size_t n_prompt;
    size_t n_answer;
    uint32_t *allowed;
    size_t n_words;
} specbatch_mask_row;
typedef struct specbatch_mask {
    size_t struct_size;
    int32_t (*allow)(void *user, specbatch_mask_row *const *rows, size_t n_rows);
    void *user;
} specbatch_mask;
typedef struct specbatch_answers {
    size_t struct_size;
    int32_t n;
    int32_t best_of;
} specbatch_answers;
#define SPECBATCH_STOPS_INIT                   \
    {                                          \
        sizeof(specbatch_stops), NULL, NULL, 0 \
    }
#define SPECBATCH_MASK_INIT                \
    {                                      \
        sizeof(specbatch_mask), NULL, NULL \
    }
#define SPECBATCH_ANSWERS_INIT          \
    {                                   \
        sizeof(specbatch_answers), 1, 0 \
    }
typedef struct specbatch_request {
    size_t struct_size;
    const int32_t *ids;
    size_t n_ids;
    const char *text;
    uint32_t text_flags;
    uint32_t flags;
    int32_t max_new;
    int32_t draft_len;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    void *user;
    size_t text_length;
    const specbatch_sampling *sampling;
    const specbatch_stops *stops;
    const specbatch_mask *mask;
    const specbatch_answers *answers;
    int32_t min_new;
    int32_t top_logprobs;
    int32_t priority;
    uint32_t draft_sources;
    uint64_t deadline_ns;
} specbatch_request;
#define SPECBATCH_REQUEST_INIT                                                                    \
    {                                                                                             \
        sizeof(specbatch_request), NULL, 0, NULL, 0, 0, 0, 0, NULL, 0, NULL, 0, NULL, NULL, NULL, \
            NULL, 0, 0, 0, 0, 0                                                                   \
    }
SPECBATCH_API int32_t specbatch_request_init(specbatch_request *request, size_t size);
SPECBATCH_API int32_t specbatch_pool_submit(specbatch_pool *pool, const specbatch_request *request,
                                            uint64_t *id);
SPECBATCH_API int32_t specbatch_pool_cancel(specbatch_pool *pool, uint64_t id);
SPECBATCH_API int32_t specbatch_pool_step(specbatch_pool *pool, size_t *n_active);
SPECBATCH_API int32_t specbatch_pool_run(specbatch_pool *pool);
SPECBATCH_API int32_t specbatch_pool_interrupt(specbatch_pool *pool);
SPECBATCH_API int32_t specbatch_pool_poll(specbatch_pool *pool, uint64_t id, int32_t *ids,
                                          size_t capacity, size_t *n);
enum {
    SPECBATCH_FINISH_EOS = 1,
    SPECBATCH_FINISH_STOP = 2,
    SPECBATCH_FINISH_LENGTH = 3,
    SPECBATCH_FINISH_CANCELLED = 4,
    SPECBATCH_FINISH_ERROR = 5,
    SPECBATCH_FINISH_DEADLINE = 6
};
SPECBATCH_API const char *specbatch_finish_name(int32_t finish);
enum {
    SPECBATCH_STATE_QUEUED = 1,
    SPECBATCH_STATE_FILLING = 2,
    SPECBATCH_STATE_DECODING = 3,
    SPECBATCH_STATE_FINISHED = 4
};
typedef struct specbatch_request_state {
    size_t struct_size;
    int32_t state;
    int32_t finish;
    uint64_t n_prompt;
    uint64_t n_filled;
    uint64_t n_generated;
    uint64_t time_queued_ns;
    uint64_t time_first_token_ns;
    uint64_t time_total_ns;
} specbatch_request_state;
#define SPECBATCH_REQUEST_STATE_INIT                            \
    {                                                           \
        sizeof(specbatch_request_state), 0, 0, 0, 0, 0, 0, 0, 0 \
    }
SPECBATCH_API int32_t specbatch_pool_state(specbatch_pool *pool, uint64_t id,
                                           specbatch_request_state *state);
typedef struct specbatch_event {
    size_t struct_size;
    uint64_t id;
    void *user;
    const int32_t *ids;
    size_t n_ids;
    const char *text;
    size_t text_length;
    int32_t finish;
    int32_t status;
} specbatch_event;
#define SPECBATCH_EVENT_INIT                                     \
    {                                                            \
        sizeof(specbatch_event), 0, NULL, NULL, 0, NULL, 0, 0, 0 \
    }
SPECBATCH_API int32_t specbatch_pool_next_event(specbatch_pool *pool, specbatch_event *event);
SPECBATCH_API int32_t specbatch_pool_save_session(specbatch_pool *pool, const int32_t *ids,
                                                  size_t n_ids, const char *path, size_t *n_kept);
SPECBATCH_API int32_t specbatch_pool_load_session(specbatch_pool *pool, const char *path,
                                                  int32_t *ids, size_t capacity, size_t *n);
typedef struct specbatch_result specbatch_result;
SPECBATCH_API int32_t specbatch_pool_collect(specbatch_pool *pool, specbatch_result **result);
SPECBATCH_API uint64_t specbatch_result_id(const specbatch_result *result);
SPECBATCH_API void *specbatch_result_user(const specbatch_result *result);
SPECBATCH_API int32_t specbatch_result_status(const specbatch_result *result);
SPECBATCH_API int32_t specbatch_result_finish(const specbatch_result *result);
SPECBATCH_API const int32_t *specbatch_result_tokens(const specbatch_result *result, size_t *n);
SPECBATCH_API const float *specbatch_result_logprobs(const specbatch_result *result, size_t *n);
SPECBATCH_API const int32_t *specbatch_result_top_ids(const specbatch_result *result,
                                                      size_t *n_top);
SPECBATCH_API const float *specbatch_result_top_logprobs(const specbatch_result *result,
                                                         size_t *n_top);
SPECBATCH_API const float *specbatch_result_prompt_logprobs(const specbatch_result *result,
                                                            size_t *n);
SPECBATCH_API const int32_t *specbatch_result_prompt_top_ids(const specbatch_result *result,
                                                             size_t *n_top);
SPECBATCH_API const float *specbatch_result_prompt_top_logprobs(const specbatch_result *result,
                                                                size_t *n_top);
SPECBATCH_API int32_t specbatch_result_answer(const specbatch_result *result);
SPECBATCH_API const char *specbatch_result_text(const specbatch_result *result, size_t *length);
SPECBATCH_API const int32_t *specbatch_result_prompt(const specbatch_result *result, size_t *n);
SPECBATCH_API size_t specbatch_result_prompt_length(const specbatch_result *result);
SPECBATCH_API uint64_t specbatch_result_rounds(const specbatch_result *result);
SPECBATCH_API uint64_t specbatch_result_drafted(const specbatch_result *result);
SPECBATCH_API uint64_t specbatch_result_accepted(const specbatch_result *result);
SPECBATCH_API uint64_t specbatch_result_time_queued_ns(const specbatch_result *result);
SPECBATCH_API uint64_t specbatch_result_time_first_token_ns(const specbatch_result *result);
SPECBATCH_API uint64_t specbatch_result_time_total_ns(const specbatch_result *result);
SPECBATCH_API const char *specbatch_result_fingerprint(const specbatch_result *result);
SPECBATCH_API void specbatch_result_free(specbatch_result *result);
SPECBATCH_API int32_t specbatch_pool_stat(const specbatch_pool *pool, const char *name,
                                          uint64_t *value);
SPECBATCH_API int32_t specbatch_stat_count(void);
SPECBATCH_API const char *specbatch_stat_name(int32_t index);
typedef struct specbatch_audit_report {
    size_t struct_size;
    int32_t equal;
    int32_t token_expected;
    int32_t token_got;
    float margin;
    int64_t first_divergence;
    uint64_t n_tokens;
} specbatch_audit_report;
#define SPECBATCH_AUDIT_REPORT_INIT                         \
    {                                                       \
        sizeof(specbatch_audit_report), 0, 0, 0, 0.0f, 0, 0 \
    }
SPECBATCH_API int32_t specbatch_audit(specbatch_model *target,
                                      const specbatch_pool_options *options,
                                      const specbatch_request *request,
                                      const specbatch_result *result,
                                      specbatch_audit_report *report);
#ifdef __cplusplus
}
#endif
#endif
