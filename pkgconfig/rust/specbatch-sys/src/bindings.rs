// Written by pkgconfig/rust/generate.py from include/specbatch.h. Do not edit.

use std::os::raw::{c_char, c_void};

pub const SPECBATCH_VERSION_MAJOR: i32 = 0;
pub const SPECBATCH_VERSION_MINOR: i32 = 2;
pub const SPECBATCH_VERSION_PATCH: i32 = 0;
pub const SPECBATCH_VERSION_NUMBER: i32 = 200;
pub const SPECBATCH_SOVERSION: i32 = 1;
pub const SPECBATCH_OK: i32 = 0;
pub const SPECBATCH_E_INVALID: i32 = -1;
pub const SPECBATCH_E_OPTIONS: i32 = -2;
pub const SPECBATCH_E_TOO_LONG: i32 = -3;
pub const SPECBATCH_E_TOKEN: i32 = -4;
pub const SPECBATCH_E_BUFFER: i32 = -5;
pub const SPECBATCH_E_NOT_FOUND: i32 = -6;
pub const SPECBATCH_E_EMPTY: i32 = -7;
pub const SPECBATCH_E_QUEUE_FULL: i32 = -8;
pub const SPECBATCH_E_BUSY: i32 = -9;
pub const SPECBATCH_E_VOCAB: i32 = -10;
pub const SPECBATCH_E_NOMEM: i32 = -20;
pub const SPECBATCH_E_BUDGET: i32 = -21;
pub const SPECBATCH_E_IO: i32 = -30;
pub const SPECBATCH_E_FORMAT: i32 = -31;
pub const SPECBATCH_E_UNSUPPORTED: i32 = -32;
pub const SPECBATCH_E_NO_TOKENIZER: i32 = -33;
pub const SPECBATCH_E_CANCELLED: i32 = -40;
pub const SPECBATCH_E_NAN: i32 = -41;
pub const SPECBATCH_E_INTERRUPTED: i32 = -42;
pub const SPECBATCH_E_NO_CHOICE: i32 = -43;
pub const SPECBATCH_E_NO_DEVICE: i32 = -50;
pub const SPECBATCH_E_DEVICE: i32 = -60;
pub const SPECBATCH_E_INTERNAL: i32 = -61;
pub const SPECBATCH_ERROR_MAX: i32 = 256;
pub const SPECBATCH_LOG_ERROR: i32 = 1;
pub const SPECBATCH_LOG_WARN: i32 = 2;
pub const SPECBATCH_LOG_INFO: i32 = 3;
pub const SPECBATCH_DEVICE_CPU: i32 = 0;
pub const SPECBATCH_DEVICE_CUDA: i32 = 1;
pub const SPECBATCH_COMPUTE_AUTO: i32 = 0;
pub const SPECBATCH_COMPUTE_BF16: i32 = 1;
pub const SPECBATCH_COMPUTE_F32: i32 = 2;
pub const SPECBATCH_COMPUTE_SPLIT: i32 = 3;
pub const SPECBATCH_COMPUTE_INT8: i32 = 4;
pub const SPECBATCH_SIMD_AUTO: i32 = 0;
pub const SPECBATCH_SIMD_SCALAR: i32 = 1;
pub const SPECBATCH_SIMD_AVX2: i32 = 2;
pub const SPECBATCH_SIMD_AVX512: i32 = 3;
pub const SPECBATCH_SIMD_AMX: i32 = 4;
pub const SPECBATCH_KV_AUTO: i32 = 0;
pub const SPECBATCH_KV_F32: i32 = 1;
pub const SPECBATCH_KV_BF16: i32 = 2;
pub const SPECBATCH_KV_F16: i32 = 3;
pub const SPECBATCH_WEIGHTS_AUTO: i32 = 0;
pub const SPECBATCH_WEIGHTS_Q8: i32 = 1;
pub const SPECBATCH_WEIGHTS_Q4: i32 = 2;
pub const SPECBATCH_PREFILL_OWN: i32 = 0;
pub const SPECBATCH_PREFILL_CUDNN: i32 = 1;
pub const SPECBATCH_TEXT_NO_BOS: u32 = 1;
pub const SPECBATCH_TEXT_PLAIN_SPECIAL: u32 = 2;
pub const SPECBATCH_TEXT_KEEP_SPECIAL: u32 = 4;
pub const SPECBATCH_CHAT_AUTO: i32 = 0;
pub const SPECBATCH_CHAT_RAW: i32 = 1;
pub const SPECBATCH_CHAT_VICUNA: i32 = 2;
pub const SPECBATCH_CHAT_QWEN3: i32 = 3;
pub const SPECBATCH_CHAT_GLM4: i32 = 4;
pub const SPECBATCH_CHAT_GLMZ1: i32 = 5;
pub const SPECBATCH_CHAT_LLAMA3: i32 = 6;
pub const SPECBATCH_CHAT_CHATML: i32 = 7;
pub const SPECBATCH_CHAT_QWEN2: i32 = 8;
pub const SPECBATCH_CHAT_QWEN2_5: i32 = 9;
pub const SPECBATCH_CHAT_PHI3: i32 = 10;
pub const SPECBATCH_CHAT_PHI3_5: i32 = 11;
pub const SPECBATCH_CHAT_PHI4: i32 = 12;
pub const SPECBATCH_CHAT_GEMMA2: i32 = 13;
pub const SPECBATCH_CHAT_GEMMA3: i32 = 14;
pub const SPECBATCH_CHAT_MISTRAL_V1: i32 = 15;
pub const SPECBATCH_CHAT_MISTRAL_V3: i32 = 16;
pub const SPECBATCH_CHAT_MISTRAL_V3_TEKKEN: i32 = 17;
pub const SPECBATCH_CHAT_MISTRAL_V7: i32 = 18;
pub const SPECBATCH_CHAT_PHI4_MINI: i32 = 19;
pub const SPECBATCH_CHAT_GLM4_5: i32 = 20;
pub const SPECBATCH_CHAT_LLAMA3_1: i32 = 21;
pub const SPECBATCH_CHAT_LLAMA3_2: i32 = 22;
pub const SPECBATCH_CHAT_GPT_OSS: i32 = 23;
pub const SPECBATCH_CHAT_DEEPSEEK_R1: i32 = 24;
pub const SPECBATCH_CHAT_NO_THINK: u32 = 1;
pub const SPECBATCH_CHAT_NO_ANSWER_PROMPT: u32 = 2;
pub const SPECBATCH_CHAT_PARSE_SPECIAL: u32 = 4;
pub const SPECBATCH_EFFORT_DEFAULT: i32 = 0;
pub const SPECBATCH_EFFORT_LOW: i32 = 1;
pub const SPECBATCH_EFFORT_MEDIUM: i32 = 2;
pub const SPECBATCH_EFFORT_HIGH: i32 = 3;
pub const SPECBATCH_POLICY_RAGGED: i32 = 0;
pub const SPECBATCH_POLICY_PLAIN: i32 = 1;
pub const SPECBATCH_POLICY_EQSPEC: i32 = 2;
pub const SPECBATCH_POLICY_EXSPEC: i32 = 3;
pub const SPECBATCH_POLICY_ROLLBACK: i32 = 4;
pub const SPECBATCH_POOL_SORT_BY_LENGTH: u32 = 1;
pub const SPECBATCH_POOL_EQSPEC_REPLACE: u32 = 2;
pub const SPECBATCH_POOL_FIXED_K: u32 = 4;
pub const SPECBATCH_POOL_GROW_SLOTS: u32 = 8;
pub const SPECBATCH_REQUEST_IGNORE_EOS: u32 = 1;
pub const SPECBATCH_REQUEST_LOGPROBS: u32 = 2;
pub const SPECBATCH_REQUEST_PROMPT_LOGPROBS: u32 = 4;
pub const SPECBATCH_REQUEST_FILTERED_LOGPROBS: u32 = 8;
pub const SPECBATCH_SAMPLING_SPARE_PROMPT: u32 = 1;
pub const SPECBATCH_FINISH_EOS: i32 = 1;
pub const SPECBATCH_FINISH_STOP: i32 = 2;
pub const SPECBATCH_FINISH_LENGTH: i32 = 3;
pub const SPECBATCH_FINISH_CANCELLED: i32 = 4;
pub const SPECBATCH_FINISH_ERROR: i32 = 5;
pub const SPECBATCH_FINISH_DEADLINE: i32 = 6;
pub const SPECBATCH_STATE_QUEUED: i32 = 1;
pub const SPECBATCH_STATE_FILLING: i32 = 2;
pub const SPECBATCH_STATE_DECODING: i32 = 3;
pub const SPECBATCH_STATE_FINISHED: i32 = 4;

#[repr(C)]
pub struct specbatch_model {
    _opaque: crate::Opaque,
}

#[repr(C)]
pub struct specbatch_text_stream {
    _opaque: crate::Opaque,
}

#[repr(C)]
pub struct specbatch_draft {
    _opaque: crate::Opaque,
}

#[repr(C)]
pub struct specbatch_pool {
    _opaque: crate::Opaque,
}

#[repr(C)]
pub struct specbatch_result {
    _opaque: crate::Opaque,
}

pub type specbatch_alloc_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, size: usize, align: usize) -> *mut c_void>;
pub type specbatch_free_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, ptr: *mut c_void, size: usize)>;
pub type specbatch_log_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, level: i32, line: *const c_char)>;
pub type specbatch_progress_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, done: u64, total: u64) -> i32>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_model_options {
    pub struct_size: usize,
    pub device: i32,
    pub compute: i32,
    pub simd: i32,
    pub device_index: i32,
    pub alloc: specbatch_alloc_fn,
    pub free: specbatch_free_fn,
    pub alloc_user: *mut c_void,
    pub log: specbatch_log_fn,
    pub log_user: *mut c_void,
    pub cuda_module: *const c_char,
    pub progress: specbatch_progress_fn,
    pub progress_user: *mut c_void,
    pub kv: i32,
    pub weights: i32,
    pub plan_file: *const c_char,
    pub prefill: i32,
    pub reserved: i32,
}
initial!(specbatch_model_options);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_message {
    pub role: *const c_char,
    pub content: *const c_char,
    pub content_length: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_chat_options {
    pub struct_size: usize,
    pub format: i32,
    pub flags: u32,
    pub date: i32,
    pub effort: i32,
}
initial!(specbatch_chat_options);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_ngram_options {
    pub struct_size: usize,
    pub max_match: i32,
    pub min_match: i32,
}
initial!(specbatch_ngram_options);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_table_options {
    pub struct_size: usize,
    pub max_match: i32,
    pub min_match: i32,
    pub min_count: i32,
    pub reserved: i32,
}
initial!(specbatch_table_options);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_draft_row {
    pub struct_size: usize,
    pub request_id: u64,
    pub request_user: *mut c_void,
    pub tokens: *const i32,
    pub n_tokens: usize,
    pub out: *mut i32,
    pub k: i32,
    pub n_out: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_draft_ops {
    pub struct_size: usize,
    pub propose: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            rows: *const *mut specbatch_draft_row,
            n_rows: usize,
        ) -> i32,
    >,
    pub retire: Option<
        unsafe extern "C" fn(user: *mut c_void, request_id: u64, request_user: *mut c_void),
    >,
    pub release: Option<unsafe extern "C" fn(user: *mut c_void)>,
    pub user: *mut c_void,
}
initial!(specbatch_draft_ops);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_pool_options {
    pub struct_size: usize,
    pub policy: i32,
    pub batch: i32,
    pub window: i32,
    pub draft_len: i32,
    pub max_len: i32,
    pub prefill_chunk: i32,
    pub n_threads: i32,
    pub flags: u32,
    pub queue_max: u64,
    pub budget_bytes: u64,
    pub alloc: specbatch_alloc_fn,
    pub free: specbatch_free_fn,
    pub alloc_user: *mut c_void,
    pub log: specbatch_log_fn,
    pub log_user: *mut c_void,
    pub cache_columns: u64,
    pub prefix_bytes: u64,
    pub draft_min_prob: f32,
    pub reserved: i32,
}
initial!(specbatch_pool_options);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_sampling {
    pub struct_size: usize,
    pub seed: u64,
    pub temperature: f32,
    pub top_k: i32,
    pub top_p: f32,
    pub typical_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub penalty_window: i32,
    pub flags: u32,
    pub bias_ids: *const i32,
    pub bias: *const f32,
    pub n_bias: usize,
}
initial!(specbatch_sampling);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_stops {
    pub struct_size: usize,
    pub strings: *const *const c_char,
    pub lengths: *const usize,
    pub n_strings: usize,
}
initial!(specbatch_stops);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_mask_row {
    pub struct_size: usize,
    pub request_id: u64,
    pub request_user: *mut c_void,
    pub tokens: *const i32,
    pub n_tokens: usize,
    pub n_prompt: usize,
    pub n_answer: usize,
    pub allowed: *mut u32,
    pub n_words: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_mask {
    pub struct_size: usize,
    pub allow: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            rows: *const *mut specbatch_mask_row,
            n_rows: usize,
        ) -> i32,
    >,
    pub user: *mut c_void,
}
initial!(specbatch_mask);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_answers {
    pub struct_size: usize,
    pub n: i32,
    pub best_of: i32,
}
initial!(specbatch_answers, n: 1);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_request {
    pub struct_size: usize,
    pub ids: *const i32,
    pub n_ids: usize,
    pub text: *const c_char,
    pub text_flags: u32,
    pub flags: u32,
    pub max_new: i32,
    pub draft_len: i32,
    pub stop_ids: *const i32,
    pub n_stop_ids: usize,
    pub user: *mut c_void,
    pub text_length: usize,
    pub sampling: *const specbatch_sampling,
    pub stops: *const specbatch_stops,
    pub mask: *const specbatch_mask,
    pub answers: *const specbatch_answers,
    pub min_new: i32,
    pub top_logprobs: i32,
    pub priority: i32,
    pub draft_sources: u32,
    pub deadline_ns: u64,
}
initial!(specbatch_request);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_request_state {
    pub struct_size: usize,
    pub state: i32,
    pub finish: i32,
    pub n_prompt: u64,
    pub n_filled: u64,
    pub n_generated: u64,
    pub time_queued_ns: u64,
    pub time_first_token_ns: u64,
    pub time_total_ns: u64,
}
initial!(specbatch_request_state);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_event {
    pub struct_size: usize,
    pub id: u64,
    pub user: *mut c_void,
    pub ids: *const i32,
    pub n_ids: usize,
    pub text: *const c_char,
    pub text_length: usize,
    pub finish: i32,
    pub status: i32,
}
initial!(specbatch_event);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct specbatch_audit_report {
    pub struct_size: usize,
    pub equal: i32,
    pub token_expected: i32,
    pub token_got: i32,
    pub margin: f32,
    pub first_divergence: i64,
    pub n_tokens: u64,
}
initial!(specbatch_audit_report);

extern "C" {
    pub fn specbatch_version() -> i32;
    pub fn specbatch_version_string() -> *const c_char;
    pub fn specbatch_abi_version() -> i32;
    pub fn specbatch_has(feature: *const c_char) -> i32;
    pub fn specbatch_status_name(status: i32) -> *const c_char;
    pub fn specbatch_status_is_fatal(status: i32) -> i32;
    pub fn specbatch_last_error() -> *const c_char;
    pub fn specbatch_model_options_init(options: *mut specbatch_model_options, size: usize) -> i32;
    pub fn specbatch_model_open(
        out: *mut *mut specbatch_model,
        path: *const c_char,
        options: *const specbatch_model_options,
    ) -> i32;
    pub fn specbatch_convert(
        to: *const c_char,
        from: *const c_char,
        options: *const specbatch_model_options,
    ) -> i32;
    pub fn specbatch_model_retain(model: *mut specbatch_model);
    pub fn specbatch_model_close(model: *mut specbatch_model);
    pub fn specbatch_model_arch(model: *const specbatch_model) -> *const c_char;
    pub fn specbatch_model_dtype(model: *const specbatch_model) -> *const c_char;
    pub fn specbatch_model_fingerprint(model: *const specbatch_model) -> *const c_char;
    pub fn specbatch_model_digest(model: *const specbatch_model) -> *const c_char;
    pub fn specbatch_model_vocab_size(model: *const specbatch_model) -> i32;
    pub fn specbatch_model_layers(model: *const specbatch_model) -> i32;
    pub fn specbatch_model_context(model: *const specbatch_model) -> i32;
    pub fn specbatch_model_bytes(model: *const specbatch_model) -> u64;
    pub fn specbatch_model_has_tokenizer(model: *const specbatch_model) -> i32;
    pub fn specbatch_model_eos(model: *const specbatch_model, n: *mut usize) -> *const i32;
    pub fn specbatch_tokenize(
        model: *const specbatch_model,
        text: *const c_char,
        length: usize,
        flags: u32,
        ids: *mut i32,
        capacity: usize,
        n: *mut usize,
    ) -> i32;
    pub fn specbatch_detokenize(
        model: *const specbatch_model,
        ids: *const i32,
        n_ids: usize,
        flags: u32,
        buffer: *mut c_char,
        capacity: usize,
        n: *mut usize,
    ) -> i32;
    pub fn specbatch_token_text(
        model: *const specbatch_model,
        id: i32,
        buffer: *mut c_char,
        capacity: usize,
        n: *mut usize,
    ) -> i32;
    pub fn specbatch_chat_count() -> i32;
    pub fn specbatch_chat_name(format: i32) -> *const c_char;
    pub fn specbatch_chat_by_name(name: *const c_char) -> i32;
    pub fn specbatch_model_chat_format(model: *const specbatch_model) -> i32;
    pub fn specbatch_chat_options_init(options: *mut specbatch_chat_options, size: usize) -> i32;
    pub fn specbatch_chat_tokens(
        model: *const specbatch_model,
        options: *const specbatch_chat_options,
        messages: *const specbatch_message,
        message_size: usize,
        n_messages: usize,
        ids: *mut i32,
        capacity: usize,
        n: *mut usize,
    ) -> i32;
    pub fn specbatch_chat_text(
        model: *const specbatch_model,
        options: *const specbatch_chat_options,
        messages: *const specbatch_message,
        message_size: usize,
        n_messages: usize,
        buffer: *mut c_char,
        capacity: usize,
        n: *mut usize,
    ) -> i32;
    pub fn specbatch_text_stream_create(
        out: *mut *mut specbatch_text_stream,
        model: *mut specbatch_model,
        flags: u32,
    ) -> i32;
    pub fn specbatch_text_stream_push(
        stream: *mut specbatch_text_stream,
        ids: *const i32,
        n_ids: usize,
        text: *mut *const c_char,
        length: *mut usize,
    ) -> i32;
    pub fn specbatch_text_stream_finish(
        stream: *mut specbatch_text_stream,
        text: *mut *const c_char,
        length: *mut usize,
    ) -> i32;
    pub fn specbatch_text_stream_free(stream: *mut specbatch_text_stream);
    pub fn specbatch_policy_count() -> i32;
    pub fn specbatch_policy_name(policy: i32) -> *const c_char;
    pub fn specbatch_policy_by_name(name: *const c_char) -> i32;
    pub fn specbatch_draft_from_model(
        out: *mut *mut specbatch_draft,
        model: *mut specbatch_model,
    ) -> i32;
    pub fn specbatch_ngram_options_init(options: *mut specbatch_ngram_options, size: usize) -> i32;
    pub fn specbatch_draft_from_ngrams(
        out: *mut *mut specbatch_draft,
        options: *const specbatch_ngram_options,
    ) -> i32;
    pub fn specbatch_draft_from_table(out: *mut *mut specbatch_draft, path: *const c_char) -> i32;
    pub fn specbatch_table_options_init(options: *mut specbatch_table_options, size: usize) -> i32;
    pub fn specbatch_table_make(
        to: *const c_char,
        model: *const specbatch_model,
        ids: *const i32,
        n_ids: usize,
        options: *const specbatch_table_options,
    ) -> i32;
    pub fn specbatch_draft_from_ops(
        out: *mut *mut specbatch_draft,
        ops: *const specbatch_draft_ops,
    ) -> i32;
    pub fn specbatch_draft_from_list(
        out: *mut *mut specbatch_draft,
        drafts: *const *mut specbatch_draft,
        n_drafts: usize,
    ) -> i32;
    pub fn specbatch_draft_retain(draft: *mut specbatch_draft);
    pub fn specbatch_draft_release(draft: *mut specbatch_draft);
    pub fn specbatch_pool_options_init(options: *mut specbatch_pool_options, size: usize) -> i32;
    pub fn specbatch_pool_bytes(
        bytes: *mut u64,
        target: *const specbatch_model,
        draft: *const specbatch_draft,
        options: *const specbatch_pool_options,
    ) -> i32;
    pub fn specbatch_pool_create(
        out: *mut *mut specbatch_pool,
        target: *mut specbatch_model,
        draft: *mut specbatch_draft,
        options: *const specbatch_pool_options,
    ) -> i32;
    pub fn specbatch_pool_free(pool: *mut specbatch_pool);
    pub fn specbatch_pool_pin(
        pool: *mut specbatch_pool,
        ids: *const i32,
        n_ids: usize,
        pin: *mut u64,
    ) -> i32;
    pub fn specbatch_pool_unpin(pool: *mut specbatch_pool, pin: u64) -> i32;
    pub fn specbatch_request_init(request: *mut specbatch_request, size: usize) -> i32;
    pub fn specbatch_pool_submit(
        pool: *mut specbatch_pool,
        request: *const specbatch_request,
        id: *mut u64,
    ) -> i32;
    pub fn specbatch_pool_cancel(pool: *mut specbatch_pool, id: u64) -> i32;
    pub fn specbatch_pool_step(pool: *mut specbatch_pool, n_active: *mut usize) -> i32;
    pub fn specbatch_pool_run(pool: *mut specbatch_pool) -> i32;
    pub fn specbatch_pool_interrupt(pool: *mut specbatch_pool) -> i32;
    pub fn specbatch_pool_poll(
        pool: *mut specbatch_pool,
        id: u64,
        ids: *mut i32,
        capacity: usize,
        n: *mut usize,
    ) -> i32;
    pub fn specbatch_finish_name(finish: i32) -> *const c_char;
    pub fn specbatch_pool_state(
        pool: *mut specbatch_pool,
        id: u64,
        state: *mut specbatch_request_state,
    ) -> i32;
    pub fn specbatch_pool_next_event(pool: *mut specbatch_pool, event: *mut specbatch_event) -> i32;
    pub fn specbatch_pool_save_session(
        pool: *mut specbatch_pool,
        ids: *const i32,
        n_ids: usize,
        path: *const c_char,
        n_kept: *mut usize,
    ) -> i32;
    pub fn specbatch_pool_load_session(
        pool: *mut specbatch_pool,
        path: *const c_char,
        ids: *mut i32,
        capacity: usize,
        n: *mut usize,
    ) -> i32;
    pub fn specbatch_pool_collect(
        pool: *mut specbatch_pool,
        result: *mut *mut specbatch_result,
    ) -> i32;
    pub fn specbatch_result_id(result: *const specbatch_result) -> u64;
    pub fn specbatch_result_user(result: *const specbatch_result) -> *mut c_void;
    pub fn specbatch_result_status(result: *const specbatch_result) -> i32;
    pub fn specbatch_result_finish(result: *const specbatch_result) -> i32;
    pub fn specbatch_result_tokens(result: *const specbatch_result, n: *mut usize) -> *const i32;
    pub fn specbatch_result_logprobs(result: *const specbatch_result, n: *mut usize) -> *const f32;
    pub fn specbatch_result_top_ids(
        result: *const specbatch_result,
        n_top: *mut usize,
    ) -> *const i32;
    pub fn specbatch_result_top_logprobs(
        result: *const specbatch_result,
        n_top: *mut usize,
    ) -> *const f32;
    pub fn specbatch_result_prompt_logprobs(
        result: *const specbatch_result,
        n: *mut usize,
    ) -> *const f32;
    pub fn specbatch_result_prompt_top_ids(
        result: *const specbatch_result,
        n_top: *mut usize,
    ) -> *const i32;
    pub fn specbatch_result_prompt_top_logprobs(
        result: *const specbatch_result,
        n_top: *mut usize,
    ) -> *const f32;
    pub fn specbatch_result_answer(result: *const specbatch_result) -> i32;
    pub fn specbatch_result_text(
        result: *const specbatch_result,
        length: *mut usize,
    ) -> *const c_char;
    pub fn specbatch_result_prompt(result: *const specbatch_result, n: *mut usize) -> *const i32;
    pub fn specbatch_result_prompt_length(result: *const specbatch_result) -> usize;
    pub fn specbatch_result_rounds(result: *const specbatch_result) -> u64;
    pub fn specbatch_result_drafted(result: *const specbatch_result) -> u64;
    pub fn specbatch_result_accepted(result: *const specbatch_result) -> u64;
    pub fn specbatch_result_time_queued_ns(result: *const specbatch_result) -> u64;
    pub fn specbatch_result_time_first_token_ns(result: *const specbatch_result) -> u64;
    pub fn specbatch_result_time_total_ns(result: *const specbatch_result) -> u64;
    pub fn specbatch_result_fingerprint(result: *const specbatch_result) -> *const c_char;
    pub fn specbatch_result_free(result: *mut specbatch_result);
    pub fn specbatch_pool_stat(
        pool: *const specbatch_pool,
        name: *const c_char,
        value: *mut u64,
    ) -> i32;
    pub fn specbatch_stat_count() -> i32;
    pub fn specbatch_stat_name(index: i32) -> *const c_char;
    pub fn specbatch_audit(
        target: *mut specbatch_model,
        options: *const specbatch_pool_options,
        request: *const specbatch_request,
        result: *const specbatch_result,
        report: *mut specbatch_audit_report,
    ) -> i32;
}
