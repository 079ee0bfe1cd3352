//! Finished requests, which the header calls results: in Rust that is another thing.

use crate::hooks::Keep;
use crate::{call, sys, Pool, RequestId, Result, Status, Token};
use std::fmt;
use std::ptr::NonNull;
use std::time::Duration;

constants! {
    /// How a request ended.
    Finish {
        /// At an end-of-sequence id.
        EOS = SPECBATCH_FINISH_EOS,
        /// At one of its own stop ids, or before one of its stop strings.
        STOP = SPECBATCH_FINISH_STOP,
        /// It has `max_new` tokens.
        LENGTH = SPECBATCH_FINISH_LENGTH,
        /// By [`Pool::cancel`].
        CANCELLED = SPECBATCH_FINISH_CANCELLED,
        /// By an error.
        ERROR = SPECBATCH_FINISH_ERROR,
        /// Its time was over.
        DEADLINE = SPECBATCH_FINISH_DEADLINE,
    }
}

impl fmt::Display for Finish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: any number may be asked for, and names are static strings.
        let name = unsafe { call::name(sys::specbatch_finish_name(self.0)) };
        f.write_str(name.unwrap_or("unknown"))
    }
}

/// A finished request. It may outlive its pool, and be read and dropped on any thread.
pub struct Finished {
    raw: NonNull<sys::specbatch_result>,
    _keep: Keep,
}

// SAFETY: any number of threads may read a result, and any one frees it, by the header.
unsafe impl Send for Finished {}
// SAFETY: the same.
unsafe impl Sync for Finished {}

/// Calls a getter of an array, which is borrowed from the result.
macro_rules! array {
    ($self:ident, $getter:ident) => {{
        let mut n = 0;
        // SAFETY: the result is alive, and its arrays live as long.
        unsafe {
            let start = sys::$getter($self.raw.as_ptr(), &mut n);
            (!start.is_null()).then(|| call::borrowed(start, n))
        }
    }};
}

/// Calls a getter of a number.
macro_rules! number {
    ($self:ident, $getter:ident) => {
        // SAFETY: the result is alive.
        unsafe { sys::$getter($self.raw.as_ptr()) }
    };
}

/// Calls the getters of alternatives to `n` tokens.
macro_rules! alternatives {
    ($self:ident, $n:expr, $ids:ident, $logprobs:ident) => {{
        let mut n_top = 0;
        // SAFETY: the result is alive, and both arrays have n_top elements for each token.
        unsafe {
            let ids = sys::$ids($self.raw.as_ptr(), &mut n_top);
            let logprobs = sys::$logprobs($self.raw.as_ptr(), &mut n_top);
            (!ids.is_null()).then(|| Alternatives {
                n_top,
                ids: call::borrowed(ids, $n * n_top),
                logprobs: call::borrowed(logprobs, $n * n_top),
            })
        }
    }};
}

impl Finished {
    /// SAFETY of the caller: `raw` is a result that has no other owner.
    pub(crate) fn new(raw: NonNull<sys::specbatch_result>, keep: &Keep) -> Finished {
        Finished { raw, _keep: keep.clone() }
    }

    pub(crate) fn raw(&self) -> *const sys::specbatch_result {
        self.raw.as_ptr()
    }

    /// The number of the request.
    pub fn id(&self) -> RequestId {
        number!(self, specbatch_result_id)
    }

    /// The request's `user`.
    pub fn user(&self) -> usize {
        number!(self, specbatch_result_user) as usize
    }

    /// `OK`, or the error that ended it.
    pub fn status(&self) -> Status {
        Status(number!(self, specbatch_result_status))
    }

    /// How it ended.
    pub fn finish(&self) -> Finish {
        Finish(number!(self, specbatch_result_finish))
    }

    /// Which of a request's answers it is.
    pub fn answer(&self) -> i32 {
        number!(self, specbatch_result_answer)
    }

    /// The generated tokens, without the prompt.
    pub fn tokens(&self) -> &[Token] {
        array!(self, specbatch_result_tokens).unwrap_or(&[])
    }

    /// The generated text without special tokens, or None: the model has no tokenizer.
    pub fn text(&self) -> Option<&str> {
        let mut length = 0;
        // SAFETY: the result is alive, and its text lives as long.
        unsafe { call::text(sys::specbatch_result_text(self.raw.as_ptr(), &mut length), length) }
    }

    /// The tokens of the prompt.
    pub fn prompt(&self) -> &[Token] {
        array!(self, specbatch_result_prompt).unwrap_or(&[])
    }

    /// The natural logarithms of the tokens' probabilities, if the request asked for them.
    pub fn logprobs(&self) -> Option<&[f32]> {
        array!(self, specbatch_result_logprobs)
    }

    /// The alternatives to each token, if the request asked for them.
    pub fn alternatives(&self) -> Option<Alternatives<'_>> {
        let n = self.tokens().len();
        alternatives!(self, n, specbatch_result_top_ids, specbatch_result_top_logprobs)
    }

    /// The same of the prompt's tokens from the second on, if the request asked for them.
    pub fn prompt_logprobs(&self) -> Option<&[f32]> {
        array!(self, specbatch_result_prompt_logprobs)
    }

    /// The alternatives to the prompt's tokens from the second on.
    pub fn prompt_alternatives(&self) -> Option<Alternatives<'_>> {
        let n = self.prompt_logprobs().map_or(0, <[f32]>::len);
        alternatives!(
            self,
            n,
            specbatch_result_prompt_top_ids,
            specbatch_result_prompt_top_logprobs
        )
    }

    /// The number of target passes that decoded it.
    pub fn rounds(&self) -> u64 {
        number!(self, specbatch_result_rounds)
    }

    /// The number of proposals that were verified for it.
    pub fn drafted(&self) -> u64 {
        number!(self, specbatch_result_drafted)
    }

    /// The number of proposals that became tokens.
    pub fn accepted(&self) -> u64 {
        number!(self, specbatch_result_accepted)
    }

    /// From its submission until it got a slot, or finished without one.
    pub fn time_queued(&self) -> Duration {
        Duration::from_nanos(number!(self, specbatch_result_time_queued_ns))
    }

    /// Until the end of the step that gave its first token; None: it has none.
    pub fn time_first_token(&self) -> Option<Duration> {
        let time = number!(self, specbatch_result_time_first_token_ns);
        (time > 0).then(|| Duration::from_nanos(time))
    }

    /// Until its end.
    pub fn time_total(&self) -> Duration {
        Duration::from_nanos(number!(self, specbatch_result_time_total_ns))
    }

    /// That of the target: see [`Model::fingerprint`](crate::Model::fingerprint).
    pub fn fingerprint(&self) -> &str {
        // SAFETY: the result is alive, and its strings live as long.
        unsafe { call::name(sys::specbatch_result_fingerprint(self.raw.as_ptr())) }.unwrap_or("")
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        // SAFETY: the result is this value's own.
        unsafe { sys::specbatch_result_free(self.raw.as_ptr()) };
        call::resume();
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Finished");
        debug.field("id", &self.id()).field("finish", &self.finish()).finish_non_exhaustive()
    }
}

/// For each token some ids, the most probable first, and their log-probabilities. Where fewer ids
/// have a probability, the rest is -1 and minus infinity.
#[derive(Clone, Copy, Debug)]
pub struct Alternatives<'a> {
    n_top: usize,
    ids: &'a [Token],
    logprobs: &'a [f32],
}

impl<'a> Alternatives<'a> {
    /// Token by token.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [Token], &'a [f32])> {
        let n_top = self.n_top.max(1);
        self.ids.chunks(n_top).zip(self.logprobs.chunks(n_top))
    }
}

/// The finished requests of a pool, in the order of finishing. See [`Pool::results`].
#[derive(Debug)]
pub struct Results<'a> {
    pub(crate) pool: Option<&'a mut Pool>,
}

impl Iterator for Results<'_> {
    type Item = Result<Finished>;

    fn next(&mut self) -> Option<Result<Finished>> {
        let next = self.pool.as_mut()?.collect().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.pool = None; // an error is told once
        }
        next
    }
}
