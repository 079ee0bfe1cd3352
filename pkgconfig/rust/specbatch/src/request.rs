//! Requests: a prompt, and how it is to be answered.
//!
//! A request borrows or owns what it is made of, and the library copies all of it when it is
//! submitted. Pointers are put together for the time of that call, on the stack of `with_raw`.

use crate::call::Raw;
use crate::{sys, MaskHandle, Result, TextFlags, Token};
use std::borrow::Cow;
use std::os::raw::{c_char, c_void};
use std::time::Duration;

/// How tokens are chosen from the model's probabilities. Steps are taken in this order: bias,
/// penalties, temperature, top-k, top-p, typical-p, min-p, choice.
#[derive(Clone, Debug, Default)]
pub struct Sampling<'a> {
    raw: Raw<sys::specbatch_sampling>,
    bias: Cow<'a, [(Token, f32)]>,
}

impl<'a> Sampling<'a> {
    /// The most probable token: temperature 0.
    pub fn new() -> Sampling<'a> {
        Sampling::default()
    }

    setters! {
        /// Requests that differ in nothing else differ by their seeds.
        field seed: u64,
        /// 0: the most probable token; else a finite number above 0.
        field temperature: f32,
        /// The so many most probable tokens; 0: all.
        field top_k: i32,
        /// The most probable tokens that together have this probability; 0: all.
        field top_p: f32,
        /// As `top_p`, in the order of how close tokens' information is to the expected one.
        field typical_p: f32,
        /// Tokens at least this times as probable as the first.
        field min_p: f32,
        /// Divides positive logits of tokens that have occurred, and multiplies others; 0: 1.
        field repetition_penalty: f32,
        /// Taken from a logit if the answer has its token already.
        field presence_penalty: f32,
        /// The same, as many times as the answer has it.
        field frequency_penalty: f32,
        /// Penalties look back so many tokens: up to 3072; 0: 3072.
        field penalty_window: i32,
        /// The repetition penalty counts tokens of the answer only.
        flag spare_prompt = SPECBATCH_SAMPLING_SPARE_PROMPT,
    }

    /// Added to the logits of these ids: at most 1024, each once. Minus infinity bans one.
    #[must_use]
    pub fn bias(mut self, bias: impl Into<Cow<'a, [(Token, f32)]>>) -> Self {
        self.bias = bias.into();
        self
    }
}

#[derive(Clone, Debug)]
enum Prompt<'a> {
    Ids(Cow<'a, [Token]>),
    Text(Cow<'a, str>, TextFlags),
}

/// A request. What it borrows is needed until it is submitted.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    raw: Raw<sys::specbatch_request>,
    prompt: Prompt<'a>,
    stop_ids: Cow<'a, [Token]>,
    stops: Vec<Cow<'a, str>>,
    sampling: Option<Sampling<'a>>,
    mask: Option<MaskHandle>,
    answers: Option<(i32, i32)>,
    user: usize,
}

impl<'a> Request<'a> {
    /// Continues a text with `max_new` tokens at most.
    pub fn text(text: impl Into<Cow<'a, str>>, max_new: i32) -> Request<'a> {
        Request::new(Prompt::Text(text.into(), TextFlags::NONE), max_new)
    }

    /// The same with flags of [`Model::tokenize`](crate::Model::tokenize).
    pub fn text_with(text: impl Into<Cow<'a, str>>, flags: TextFlags, max_new: i32) -> Request<'a> {
        Request::new(Prompt::Text(text.into(), flags), max_new)
    }

    /// Continues token ids with `max_new` tokens at most.
    pub fn ids(ids: impl Into<Cow<'a, [Token]>>, max_new: i32) -> Request<'a> {
        Request::new(Prompt::Ids(ids.into()), max_new)
    }

    fn new(prompt: Prompt<'a>, max_new: i32) -> Request<'a> {
        let raw = sys::specbatch_request { max_new, ..Default::default() };
        Request {
            raw: Raw(raw),
            prompt,
            stop_ids: Cow::Borrowed(&[]),
            stops: Vec::new(),
            sampling: None,
            mask: None,
            answers: None,
            user: 0,
        }
    }

    setters! {
        /// Proposals in a round at most; 0: the pool's; -1: no speculation for this request.
        field draft_len: i32,
        /// Before it has so many tokens nothing ends it.
        field min_new: i32,
        /// Alternatives to each token that are kept: 0..32.
        field top_logprobs: i32,
        /// Requests of higher priority leave the queue first: -1000..1000.
        field priority: i32,
        /// Of a draft of several sources those that may propose, bit i for source i; 0: all.
        field draft_sources: u32,
        /// Go on past the model's end-of-sequence ids.
        flag ignore_eos = SPECBATCH_REQUEST_IGNORE_EOS,
        /// Keep the log-probability of every token.
        flag logprobs = SPECBATCH_REQUEST_LOGPROBS,
        /// The same of every token of the prompt but the first; `max_new` may be 0 then.
        flag prompt_logprobs = SPECBATCH_REQUEST_PROMPT_LOGPROBS,
        /// Log-probabilities are by what tokens are sampled from, not the model's own.
        flag filtered_logprobs = SPECBATCH_REQUEST_FILTERED_LOGPROBS,
    }

    /// Further ids that end the answer, with which it ends: at most 64.
    #[must_use]
    pub fn stop_ids(mut self, ids: impl Into<Cow<'a, [Token]>>) -> Self {
        self.stop_ids = ids.into();
        self
    }

    /// Strings that end the answer, which ends before them: at most 16 of at most 255 bytes.
    #[must_use]
    pub fn stops<S: Into<Cow<'a, str>>>(mut self, strings: impl IntoIterator<Item = S>) -> Self {
        self.stops = strings.into_iter().map(Into::into).collect();
        self
    }

    /// How tokens are chosen.
    #[must_use]
    pub fn sampling(mut self, sampling: Sampling<'a>) -> Self {
        self.sampling = Some(sampling);
        self
    }

    /// What may be generated.
    #[must_use]
    pub fn mask(mut self, mask: &MaskHandle) -> Self {
        self.mask = Some(mask.clone());
        self
    }

    /// Asks for `n` answers, which have the numbers id, id + 1 and so on, and the seeds too.
    #[must_use]
    pub fn answers(mut self, n: i32) -> Self {
        self.answers = Some((n, 0));
        self
    }

    /// Makes `best_of` answers, and hands out the `n` most probable.
    #[must_use]
    pub fn best_of(mut self, n: i32, best_of: i32) -> Self {
        self.answers = Some((n, best_of));
        self
    }

    /// A number of your own, which callbacks, events and results have.
    #[must_use]
    pub fn user(mut self, user: usize) -> Self {
        self.user = user;
        self
    }

    /// Ends it when the next step begins after this time from its submission on.
    #[must_use]
    pub fn deadline(mut self, time: Duration) -> Self {
        // To the library 0 is no deadline.
        self.raw.0.deadline_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        self
    }

    pub(crate) fn mask_handle(&self) -> Option<&MaskHandle> {
        self.mask.as_ref()
    }

    /// How many numbers it takes, and how many results it has.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let (n, best_of) = self.answers.unwrap_or((1, 0));
        (n.max(best_of).max(1) as u64, n.max(1) as u64)
    }

    /// Calls `call` with the request as C has it.
    pub(crate) fn with_raw<T>(
        &self,
        call: impl FnOnce(&sys::specbatch_request) -> Result<T>,
    ) -> Result<T> {
        let mut raw = self.raw.0;
        match &self.prompt {
            Prompt::Ids(ids) => {
                raw.ids = ids.as_ptr();
                raw.n_ids = ids.len();
            }
            Prompt::Text(text, flags) => {
                // To the library the length 0 is "up to the NUL", and a &str has none.
                raw.text = if text.is_empty() { "\0" } else { text }.as_ptr().cast();
                raw.text_length = text.len();
                raw.text_flags = flags.0;
            }
        }
        raw.stop_ids = self.stop_ids.as_ptr();
        raw.n_stop_ids = self.stop_ids.len();
        raw.user = self.user as *mut c_void;

        let (ids, biases): (Vec<_>, Vec<_>) =
            self.sampling.iter().flat_map(|sampling| sampling.bias.iter().copied()).unzip();
        let sampling = self.sampling.as_ref().map(|sampling| sys::specbatch_sampling {
            bias_ids: ids.as_ptr(),
            bias: biases.as_ptr(),
            n_bias: ids.len(),
            ..sampling.raw.0
        });
        if let Some(sampling) = &sampling {
            raw.sampling = sampling;
        }
        let starts: Vec<*const c_char> = self.stops.iter().map(|s| s.as_ptr().cast()).collect();
        let lengths: Vec<usize> = self.stops.iter().map(|s| s.len()).collect();
        let mut stops = sys::specbatch_stops::default();
        if !self.stops.is_empty() {
            stops.strings = starts.as_ptr();
            stops.lengths = lengths.as_ptr();
            stops.n_strings = starts.len();
            raw.stops = &stops;
        }
        let mask = self.mask.as_ref().map(MaskHandle::raw);
        if let Some(mask) = &mask {
            raw.mask = mask;
        }
        let mut answers = sys::specbatch_answers::default();
        if let Some((n, best_of)) = self.answers {
            answers.n = n;
            answers.best_of = best_of;
            raw.answers = &answers;
        }
        call(&raw)
    }
}
