//! How a pool works.

use crate::call::Raw;
use crate::hooks::Hooks;
use crate::sys;
use std::sync::Arc;

constants! {
    /// How the rows of a round are chosen. Tokens do not depend on it.
    Policy {
        /// Any `batch` sequences, each with its own length.
        RAGGED = SPECBATCH_POLICY_RAGGED,
        /// The same without speculation.
        PLAIN = SPECBATCH_POLICY_PLAIN,
        /// `batch` sequences until all have finished, realigned after every round.
        EQSPEC = SPECBATCH_POLICY_EQSPEC,
        /// Sequences that are aligned already, out of a window.
        EXSPEC = SPECBATCH_POLICY_EXSPEC,
        /// Each row is cut to the smallest accepted count of the round.
        ROLLBACK = SPECBATCH_POLICY_ROLLBACK,
    }
}

named!(Policy, specbatch_policy_count, specbatch_policy_name, specbatch_policy_by_name);

/// How a pool works. Whatever is not set has the header's default, which 0 stands for.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    raw: Raw<sys::specbatch_pool_options>,
    hooks: Hooks,
}

impl PoolOptions {
    /// The defaults.
    pub fn new() -> PoolOptions {
        PoolOptions::default()
    }

    setters! {
        /// How rows are chosen.
        constant policy: Policy,
        /// Rows that a round decodes at most: 1..4096; 0: 8.
        field batch: i32,
        /// Sequences that exspec keeps in the caches; 0: 6 * batch.
        field window: i32,
        /// Proposals for a row in a round at most: 1..64; 0: 5; -1: none.
        field draft_len: i32,
        /// Tokens of a prompt and its `max_new` at most; 0: the context or 2048.
        field max_len: i32,
        /// Prompt tokens that a pass computes beside its rows at most: 1..8192; 0: 128.
        field prefill_chunk: i32,
        /// Threads: 1..256; 0: one for each processor.
        field n_threads: i32,
        /// Requests that may wait; 0: 65536.
        field queue_max: u64,
        /// Bytes that caches and buffers may take at most; 0: no bound.
        field budget_bytes: u64,
        /// Columns of the caches, which sequences share.
        field cache_columns: u64,
        /// Bytes for what is kept of prompts and answers that have ended; 0: nothing is kept.
        field prefix_bytes: u64,
        /// A draft model stops behind a token less probable than this; 0: never.
        field draft_min_prob: f32,
        /// Short prompts first.
        flag sort_by_length = SPECBATCH_POOL_SORT_BY_LENGTH,
        /// For eqspec: a finished row's place is filled at once.
        flag eqspec_replace = SPECBATCH_POOL_EQSPEC_REPLACE,
        /// Always ask for `draft_len` proposals, also where they do not pay.
        flag fixed_k = SPECBATCH_POOL_FIXED_K,
        /// Slots grow with answers, so that more requests fit in the caches.
        flag grow_slots = SPECBATCH_POOL_GROW_SLOTS,
    }
    hook_setters!();

    /// The options as C has them, and the hooks that they point to.
    pub(crate) fn raw(&self) -> (sys::specbatch_pool_options, Arc<Hooks>) {
        let hooks = Arc::new(self.hooks.clone());
        let mut raw = self.raw.0;
        install!(raw, &hooks);
        (raw, hooks)
    }
}
