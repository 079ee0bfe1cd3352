"""The header in ctypes, generated from include/specbatch.h by make_abi.py."""

from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p)

VERSION = "0.2.0"
VERSION_NUMBER = 200
SOVERSION = 1

OK = 0
E_INVALID = -1
E_OPTIONS = -2
E_TOO_LONG = -3
E_TOKEN = -4
E_BUFFER = -5
E_NOT_FOUND = -6
E_EMPTY = -7
E_QUEUE_FULL = -8
E_BUSY = -9
E_VOCAB = -10
E_NOMEM = -20
E_BUDGET = -21
E_IO = -30
E_FORMAT = -31
E_UNSUPPORTED = -32
E_NO_TOKENIZER = -33
E_CANCELLED = -40
E_NAN = -41
E_INTERRUPTED = -42
E_NO_CHOICE = -43
E_NO_DEVICE = -50
E_DEVICE = -60
E_INTERNAL = -61
ERROR_MAX = 256
LOG_ERROR = 1
LOG_WARN = 2
LOG_INFO = 3
DEVICE_CPU = 0
DEVICE_CUDA = 1
COMPUTE_AUTO = 0
COMPUTE_BF16 = 1
COMPUTE_F32 = 2
COMPUTE_SPLIT = 3
COMPUTE_INT8 = 4
SIMD_AUTO = 0
SIMD_SCALAR = 1
SIMD_AVX2 = 2
SIMD_AVX512 = 3
SIMD_AMX = 4
KV_AUTO = 0
KV_F32 = 1
KV_BF16 = 2
KV_F16 = 3
WEIGHTS_AUTO = 0
WEIGHTS_Q8 = 1
WEIGHTS_Q4 = 2
PREFILL_OWN = 0
PREFILL_CUDNN = 1
TEXT_NO_BOS = 1
TEXT_PLAIN_SPECIAL = 2
TEXT_KEEP_SPECIAL = 4
CHAT_AUTO = 0
CHAT_RAW = 1
CHAT_VICUNA = 2
CHAT_QWEN3 = 3
CHAT_GLM4 = 4
CHAT_GLMZ1 = 5
CHAT_LLAMA3 = 6
CHAT_CHATML = 7
CHAT_QWEN2 = 8
CHAT_QWEN2_5 = 9
CHAT_PHI3 = 10
CHAT_PHI3_5 = 11
CHAT_PHI4 = 12
CHAT_GEMMA2 = 13
CHAT_GEMMA3 = 14
CHAT_MISTRAL_V1 = 15
CHAT_MISTRAL_V3 = 16
CHAT_MISTRAL_V3_TEKKEN = 17
CHAT_MISTRAL_V7 = 18
CHAT_PHI4_MINI = 19
CHAT_GLM4_5 = 20
CHAT_LLAMA3_1 = 21
CHAT_LLAMA3_2 = 22
CHAT_GPT_OSS = 23
CHAT_DEEPSEEK_R1 = 24
CHAT_NO_THINK = 1
CHAT_NO_ANSWER_PROMPT = 2
CHAT_PARSE_SPECIAL = 4
EFFORT_DEFAULT = 0
EFFORT_LOW = 1
EFFORT_MEDIUM = 2
EFFORT_HIGH = 3
POLICY_RAGGED = 0
POLICY_PLAIN = 1
POLICY_EQSPEC = 2
POLICY_EXSPEC = 3
POLICY_ROLLBACK = 4
POOL_SORT_BY_LENGTH = 1
POOL_EQSPEC_REPLACE = 2
POOL_FIXED_K = 4
POOL_GROW_SLOTS = 8
REQUEST_IGNORE_EOS = 1
REQUEST_LOGPROBS = 2
REQUEST_PROMPT_LOGPROBS = 4
REQUEST_FILTERED_LOGPROBS = 8
SAMPLING_SPARE_PROMPT = 1
FINISH_EOS = 1
FINISH_STOP = 2
FINISH_LENGTH = 3
FINISH_CANCELLED = 4
FINISH_ERROR = 5
FINISH_DEADLINE = 6
STATE_QUEUED = 1
STATE_FILLING = 2
STATE_DECODING = 3
STATE_FINISHED = 4

alloc_fn = CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
free_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
log_fn = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
progress_fn = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64)


class model_options(Structure):
    _fields_ = [("struct_size", c_size_t), ("device", c_int32), ("compute", c_int32),
        ("simd", c_int32), ("device_index", c_int32), ("alloc", alloc_fn), ("free", free_fn),
        ("alloc_user", c_void_p), ("log", log_fn), ("log_user", c_void_p),
        ("cuda_module", c_char_p), ("progress", progress_fn), ("progress_user", c_void_p),
        ("kv", c_int32), ("weights", c_int32), ("plan_file", c_char_p), ("prefill", c_int32),
        ("reserved", c_int32)]


class message(Structure):
    _fields_ = [("role", c_char_p), ("content", c_char_p), ("content_length", c_size_t)]


class chat_options(Structure):
    _fields_ = [("struct_size", c_size_t), ("format", c_int32), ("flags", c_uint32),
        ("date", c_int32), ("effort", c_int32)]


class ngram_options(Structure):
    _fields_ = [("struct_size", c_size_t), ("max_match", c_int32), ("min_match", c_int32)]


class table_options(Structure):
    _fields_ = [("struct_size", c_size_t), ("max_match", c_int32), ("min_match", c_int32),
        ("min_count", c_int32), ("reserved", c_int32)]


class draft_row(Structure):
    _fields_ = [("struct_size", c_size_t), ("request_id", c_uint64), ("request_user", c_void_p),
        ("tokens", POINTER(c_int32)), ("n_tokens", c_size_t), ("out", POINTER(c_int32)),
        ("k", c_int32), ("n_out", c_int32)]


class draft_ops(Structure):
    _fields_ = [("struct_size", c_size_t),
        ("propose", CFUNCTYPE(c_int32, c_void_p, POINTER(POINTER(draft_row)), c_size_t)),
        ("retire", CFUNCTYPE(None, c_void_p, c_uint64, c_void_p)),
        ("release", CFUNCTYPE(None, c_void_p)), ("user", c_void_p)]


class pool_options(Structure):
    _fields_ = [("struct_size", c_size_t), ("policy", c_int32), ("batch", c_int32),
        ("window", c_int32), ("draft_len", c_int32), ("max_len", c_int32),
        ("prefill_chunk", c_int32), ("n_threads", c_int32), ("flags", c_uint32),
        ("queue_max", c_uint64), ("budget_bytes", c_uint64), ("alloc", alloc_fn),
        ("free", free_fn), ("alloc_user", c_void_p), ("log", log_fn), ("log_user", c_void_p),
        ("cache_columns", c_uint64), ("prefix_bytes", c_uint64), ("draft_min_prob", c_float),
        ("reserved", c_int32)]


class sampling(Structure):
    _fields_ = [("struct_size", c_size_t), ("seed", c_uint64), ("temperature", c_float),
        ("top_k", c_int32), ("top_p", c_float), ("typical_p", c_float), ("min_p", c_float),
        ("repetition_penalty", c_float), ("presence_penalty", c_float),
        ("frequency_penalty", c_float), ("penalty_window", c_int32), ("flags", c_uint32),
        ("bias_ids", POINTER(c_int32)), ("bias", POINTER(c_float)), ("n_bias", c_size_t)]


class stops(Structure):
    _fields_ = [("struct_size", c_size_t), ("strings", POINTER(c_char_p)),
        ("lengths", POINTER(c_size_t)), ("n_strings", c_size_t)]


class mask_row(Structure):
    _fields_ = [("struct_size", c_size_t), ("request_id", c_uint64), ("request_user", c_void_p),
        ("tokens", POINTER(c_int32)), ("n_tokens", c_size_t), ("n_prompt", c_size_t),
        ("n_answer", c_size_t), ("allowed", POINTER(c_uint32)), ("n_words", c_size_t)]


class mask(Structure):
    _fields_ = [("struct_size", c_size_t),
        ("allow", CFUNCTYPE(c_int32, c_void_p, POINTER(POINTER(mask_row)), c_size_t)),
        ("user", c_void_p)]


class answers(Structure):
    _fields_ = [("struct_size", c_size_t), ("n", c_int32), ("best_of", c_int32)]


class request(Structure):
    _fields_ = [("struct_size", c_size_t), ("ids", POINTER(c_int32)), ("n_ids", c_size_t),
        ("text", c_char_p), ("text_flags", c_uint32), ("flags", c_uint32), ("max_new", c_int32),
        ("draft_len", c_int32), ("stop_ids", POINTER(c_int32)), ("n_stop_ids", c_size_t),
        ("user", c_void_p), ("text_length", c_size_t), ("sampling", POINTER(sampling)),
        ("stops", POINTER(stops)), ("mask", POINTER(mask)), ("answers", POINTER(answers)),
        ("min_new", c_int32), ("top_logprobs", c_int32), ("priority", c_int32),
        ("draft_sources", c_uint32), ("deadline_ns", c_uint64)]


class request_state(Structure):
    _fields_ = [("struct_size", c_size_t), ("state", c_int32), ("finish", c_int32),
        ("n_prompt", c_uint64), ("n_filled", c_uint64), ("n_generated", c_uint64),
        ("time_queued_ns", c_uint64), ("time_first_token_ns", c_uint64),
        ("time_total_ns", c_uint64)]


class event(Structure):
    _fields_ = [("struct_size", c_size_t), ("id", c_uint64), ("user", c_void_p),
        ("ids", POINTER(c_int32)), ("n_ids", c_size_t), ("text", c_char_p),
        ("text_length", c_size_t), ("finish", c_int32), ("status", c_int32)]


class audit_report(Structure):
    _fields_ = [("struct_size", c_size_t), ("equal", c_int32), ("token_expected", c_int32),
        ("token_got", c_int32), ("margin", c_float), ("first_divergence", c_int64),
        ("n_tokens", c_uint64)]


SIZES = ((model_options, 112), (message, 24), (chat_options, 24), (ngram_options, 16),
        (table_options, 24), (draft_row, 56), (draft_ops, 40), (pool_options, 120),
        (sampling, 80), (stops, 32), (mask_row, 72), (mask, 24), (answers, 16), (request, 136),
        (request_state, 64), (event, 64), (audit_report, 40))
# What functions return, and their arguments. A negative STATUS is an error.
STATUS = "status"
FUNCTIONS = {
    "version": (c_int32, ()),
    "version_string": (c_char_p, ()),
    "abi_version": (c_int32, ()),
    "has": (c_int32, (c_char_p, )),
    "status_name": (c_char_p, (c_int32, )),
    "status_is_fatal": (c_int32, (c_int32, )),
    "last_error": (c_char_p, ()),
    "model_options_init": (STATUS, (POINTER(model_options), c_size_t, )),
    "model_open": (STATUS, (POINTER(c_void_p), c_char_p, POINTER(model_options), )),
    "convert": (STATUS, (c_char_p, c_char_p, POINTER(model_options), )),
    "model_retain": (None, (c_void_p, )),
    "model_close": (None, (c_void_p, )),
    "model_arch": (c_char_p, (c_void_p, )),
    "model_dtype": (c_char_p, (c_void_p, )),
    "model_fingerprint": (c_char_p, (c_void_p, )),
    "model_digest": (c_char_p, (c_void_p, )),
    "model_vocab_size": (c_int32, (c_void_p, )),
    "model_layers": (c_int32, (c_void_p, )),
    "model_context": (c_int32, (c_void_p, )),
    "model_bytes": (c_uint64, (c_void_p, )),
    "model_has_tokenizer": (c_int32, (c_void_p, )),
    "model_eos": (POINTER(c_int32), (c_void_p, POINTER(c_size_t), )),
    "tokenize": (STATUS, (c_void_p, c_char_p, c_size_t, c_uint32, POINTER(c_int32), c_size_t,
        POINTER(c_size_t), )),
    "detokenize": (STATUS, (c_void_p, POINTER(c_int32), c_size_t, c_uint32, c_void_p, c_size_t,
        POINTER(c_size_t), )),
    "token_text": (STATUS, (c_void_p, c_int32, c_void_p, c_size_t, POINTER(c_size_t), )),
    "chat_count": (c_int32, ()),
    "chat_name": (c_char_p, (c_int32, )),
    "chat_by_name": (STATUS, (c_char_p, )),
    "model_chat_format": (STATUS, (c_void_p, )),
    "chat_options_init": (STATUS, (POINTER(chat_options), c_size_t, )),
    "chat_tokens": (STATUS, (c_void_p, POINTER(chat_options), POINTER(message), c_size_t,
        c_size_t, POINTER(c_int32), c_size_t, POINTER(c_size_t), )),
    "chat_text": (STATUS, (c_void_p, POINTER(chat_options), POINTER(message), c_size_t, c_size_t,
        c_void_p, c_size_t, POINTER(c_size_t), )),
    "text_stream_create": (STATUS, (POINTER(c_void_p), c_void_p, c_uint32, )),
    "text_stream_push": (STATUS, (c_void_p, POINTER(c_int32), c_size_t, POINTER(c_void_p),
        POINTER(c_size_t), )),
    "text_stream_finish": (STATUS, (c_void_p, POINTER(c_void_p), POINTER(c_size_t), )),
    "text_stream_free": (None, (c_void_p, )),
    "policy_count": (c_int32, ()),
    "policy_name": (c_char_p, (c_int32, )),
    "policy_by_name": (STATUS, (c_char_p, )),
    "draft_from_model": (STATUS, (POINTER(c_void_p), c_void_p, )),
    "ngram_options_init": (STATUS, (POINTER(ngram_options), c_size_t, )),
    "draft_from_ngrams": (STATUS, (POINTER(c_void_p), POINTER(ngram_options), )),
    "draft_from_table": (STATUS, (POINTER(c_void_p), c_char_p, )),
    "table_options_init": (STATUS, (POINTER(table_options), c_size_t, )),
    "table_make": (STATUS, (c_char_p, c_void_p, POINTER(c_int32), c_size_t,
        POINTER(table_options), )),
    "draft_from_ops": (STATUS, (POINTER(c_void_p), POINTER(draft_ops), )),
    "draft_from_list": (STATUS, (POINTER(c_void_p), POINTER(c_void_p), c_size_t, )),
    "draft_retain": (None, (c_void_p, )),
    "draft_release": (None, (c_void_p, )),
    "pool_options_init": (STATUS, (POINTER(pool_options), c_size_t, )),
    "pool_bytes": (STATUS, (POINTER(c_uint64), c_void_p, c_void_p, POINTER(pool_options), )),
    "pool_create": (STATUS, (POINTER(c_void_p), c_void_p, c_void_p, POINTER(pool_options), )),
    "pool_free": (None, (c_void_p, )),
    "pool_pin": (STATUS, (c_void_p, POINTER(c_int32), c_size_t, POINTER(c_uint64), )),
    "pool_unpin": (STATUS, (c_void_p, c_uint64, )),
    "request_init": (STATUS, (POINTER(request), c_size_t, )),
    "pool_submit": (STATUS, (c_void_p, POINTER(request), POINTER(c_uint64), )),
    "pool_cancel": (STATUS, (c_void_p, c_uint64, )),
    "pool_step": (STATUS, (c_void_p, POINTER(c_size_t), )),
    "pool_run": (STATUS, (c_void_p, )),
    "pool_interrupt": (STATUS, (c_void_p, )),
    "pool_poll": (STATUS, (c_void_p, c_uint64, POINTER(c_int32), c_size_t, POINTER(c_size_t), )),
    "finish_name": (c_char_p, (c_int32, )),
    "pool_state": (STATUS, (c_void_p, c_uint64, POINTER(request_state), )),
    "pool_next_event": (STATUS, (c_void_p, POINTER(event), )),
    "pool_save_session": (STATUS, (c_void_p, POINTER(c_int32), c_size_t, c_char_p,
        POINTER(c_size_t), )),
    "pool_load_session": (STATUS, (c_void_p, c_char_p, POINTER(c_int32), c_size_t,
        POINTER(c_size_t), )),
    "pool_collect": (STATUS, (c_void_p, POINTER(c_void_p), )),
    "result_id": (c_uint64, (c_void_p, )),
    "result_user": (c_void_p, (c_void_p, )),
    "result_status": (c_int32, (c_void_p, )),
    "result_finish": (c_int32, (c_void_p, )),
    "result_tokens": (POINTER(c_int32), (c_void_p, POINTER(c_size_t), )),
    "result_logprobs": (POINTER(c_float), (c_void_p, POINTER(c_size_t), )),
    "result_top_ids": (POINTER(c_int32), (c_void_p, POINTER(c_size_t), )),
    "result_top_logprobs": (POINTER(c_float), (c_void_p, POINTER(c_size_t), )),
    "result_prompt_logprobs": (POINTER(c_float), (c_void_p, POINTER(c_size_t), )),
    "result_prompt_top_ids": (POINTER(c_int32), (c_void_p, POINTER(c_size_t), )),
    "result_prompt_top_logprobs": (POINTER(c_float), (c_void_p, POINTER(c_size_t), )),
    "result_answer": (c_int32, (c_void_p, )),
    "result_text": (c_void_p, (c_void_p, POINTER(c_size_t), )),
    "result_prompt": (POINTER(c_int32), (c_void_p, POINTER(c_size_t), )),
    "result_prompt_length": (c_size_t, (c_void_p, )),
    "result_rounds": (c_uint64, (c_void_p, )),
    "result_drafted": (c_uint64, (c_void_p, )),
    "result_accepted": (c_uint64, (c_void_p, )),
    "result_time_queued_ns": (c_uint64, (c_void_p, )),
    "result_time_first_token_ns": (c_uint64, (c_void_p, )),
    "result_time_total_ns": (c_uint64, (c_void_p, )),
    "result_fingerprint": (c_char_p, (c_void_p, )),
    "result_free": (None, (c_void_p, )),
    "pool_stat": (STATUS, (c_void_p, c_char_p, POINTER(c_uint64), )),
    "stat_count": (c_int32, ()),
    "stat_name": (c_char_p, (c_int32, )),
    "audit": (STATUS, (c_void_p, POINTER(pool_options), POINTER(request), c_void_p,
        POINTER(audit_report), )),
}
