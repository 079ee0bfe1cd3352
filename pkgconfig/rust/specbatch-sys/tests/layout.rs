// Written by pkgconfig/rust/generate.py from include/specbatch.h. Do not edit.
//! Structs have the sizes and offsets of the header.

use specbatch_sys::*;
use std::mem::{size_of, MaybeUninit};

/// Checks the size of a struct, and the offset of each field.
macro_rules! layout {
    ($name:ident, $size:literal, $($field:ident $offset:literal),+) => {{
        assert_eq!(size_of::<$name>(), $size, stringify!($name));
        let place = MaybeUninit::<$name>::uninit();
        let start = place.as_ptr();
        $(
            // SAFETY: the field's address is taken, and nothing is read.
            let field = unsafe { std::ptr::addr_of!((*start).$field) };
            let offset = field as usize - start as usize;
            let name = concat!(stringify!($name), ".", stringify!($field));
            assert_eq!(offset, $offset, "{name}");
        )+
    }};
}

#[test]
#[rustfmt::skip]
fn structs_have_the_headers_layout() {
    layout!(specbatch_model_options, 112,
        struct_size 0, device 8, compute 12, simd 16, device_index 20, alloc 24, free 32,
        alloc_user 40, log 48, log_user 56, cuda_module 64, progress 72, progress_user 80, kv 88,
        weights 92, plan_file 96, prefill 104, reserved 108);
    layout!(specbatch_message, 24,
        role 0, content 8, content_length 16);
    layout!(specbatch_chat_options, 24,
        struct_size 0, format 8, flags 12, date 16, effort 20);
    layout!(specbatch_ngram_options, 16,
        struct_size 0, max_match 8, min_match 12);
    layout!(specbatch_table_options, 24,
        struct_size 0, max_match 8, min_match 12, min_count 16, reserved 20);
    layout!(specbatch_draft_row, 56,
        struct_size 0, request_id 8, request_user 16, tokens 24, n_tokens 32, out 40, k 48,
        n_out 52);
    layout!(specbatch_draft_ops, 40,
        struct_size 0, propose 8, retire 16, release 24, user 32);
    layout!(specbatch_pool_options, 120,
        struct_size 0, policy 8, batch 12, window 16, draft_len 20, max_len 24, prefill_chunk 28,
        n_threads 32, flags 36, queue_max 40, budget_bytes 48, alloc 56, free 64, alloc_user 72,
        log 80, log_user 88, cache_columns 96, prefix_bytes 104, draft_min_prob 112, reserved 116);
    layout!(specbatch_sampling, 80,
        struct_size 0, seed 8, temperature 16, top_k 20, top_p 24, typical_p 28, min_p 32,
        repetition_penalty 36, presence_penalty 40, frequency_penalty 44, penalty_window 48,
        flags 52, bias_ids 56, bias 64, n_bias 72);
    layout!(specbatch_stops, 32,
        struct_size 0, strings 8, lengths 16, n_strings 24);
    layout!(specbatch_mask_row, 72,
        struct_size 0, request_id 8, request_user 16, tokens 24, n_tokens 32, n_prompt 40,
        n_answer 48, allowed 56, n_words 64);
    layout!(specbatch_mask, 24,
        struct_size 0, allow 8, user 16);
    layout!(specbatch_answers, 16,
        struct_size 0, n 8, best_of 12);
    layout!(specbatch_request, 136,
        struct_size 0, ids 8, n_ids 16, text 24, text_flags 32, flags 36, max_new 40, draft_len 44,
        stop_ids 48, n_stop_ids 56, user 64, text_length 72, sampling 80, stops 88, mask 96,
        answers 104, min_new 112, top_logprobs 116, priority 120, draft_sources 124,
        deadline_ns 128);
    layout!(specbatch_request_state, 64,
        struct_size 0, state 8, finish 12, n_prompt 16, n_filled 24, n_generated 32,
        time_queued_ns 40, time_first_token_ns 48, time_total_ns 56);
    layout!(specbatch_event, 64,
        struct_size 0, id 8, user 16, ids 24, n_ids 32, text 40, text_length 48, finish 56,
        status 60);
    layout!(specbatch_audit_report, 40,
        struct_size 0, equal 8, token_expected 12, token_got 16, margin 20, first_divergence 24,
        n_tokens 32);
}

#[test]
fn the_library_has_the_headers_version() {
    // SAFETY: both functions take nothing and may be called at any time.
    unsafe {
        assert!(specbatch_version() >= SPECBATCH_VERSION_NUMBER);
        assert_eq!(specbatch_abi_version(), SPECBATCH_SOVERSION);
    }
}
