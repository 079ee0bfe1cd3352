//! Status codes, and the error that every fallible function returns.

use crate::{call, sys};
use std::fmt;

constants! {
    /// Why a call or a request has failed. Displayed as its name in `specbatch.h`.
    Status {
        /// No failure.
        OK = SPECBATCH_OK,
        /// An argument is out of range, or breaks a rule.
        INVALID = SPECBATCH_E_INVALID,
        /// An option is not known to this library.
        OPTIONS = SPECBATCH_E_OPTIONS,
        /// Prompt and `max_new` do not fit the model's context or the pool's `max_len`.
        TOO_LONG = SPECBATCH_E_TOO_LONG,
        /// A token is outside the vocabulary.
        TOKEN = SPECBATCH_E_TOKEN,
        /// A buffer is too small.
        BUFFER = SPECBATCH_E_BUFFER,
        /// There is no such request, counter, policy or format.
        NOT_FOUND = SPECBATCH_E_NOT_FOUND,
        /// There is nothing to take; methods of this crate return `None` for it.
        EMPTY = SPECBATCH_E_EMPTY,
        /// As many requests wait as `queue_max` allows.
        QUEUE_FULL = SPECBATCH_E_QUEUE_FULL,
        /// The call came from a callback of the same pool.
        BUSY = SPECBATCH_E_BUSY,
        /// Draft and target do not share a vocabulary.
        VOCAB = SPECBATCH_E_VOCAB,
        /// An allocation failed.
        NOMEM = SPECBATCH_E_NOMEM,
        /// More memory is needed than `budget_bytes`, or than the prefix cache has.
        BUDGET = SPECBATCH_E_BUDGET,
        /// A file cannot be opened, read or written.
        IO = SPECBATCH_E_IO,
        /// A file breaks the rules of its format.
        FORMAT = SPECBATCH_E_FORMAT,
        /// Well formed, and nothing that this library can run.
        UNSUPPORTED = SPECBATCH_E_UNSUPPORTED,
        /// Text was given or asked for, and the model has no tokenizer.
        NO_TOKENIZER = SPECBATCH_E_NO_TOKENIZER,
        /// A callback asked to stop.
        CANCELLED = SPECBATCH_E_CANCELLED,
        /// The target's logits hold a NaN.
        NAN = SPECBATCH_E_NAN,
        /// An [`Interrupter`](crate::Interrupter) was used.
        INTERRUPTED = SPECBATCH_E_INTERRUPTED,
        /// Mask and bans leave no token to go on with.
        NO_CHOICE = SPECBATCH_E_NO_CHOICE,
        /// The device asked for is not there.
        NO_DEVICE = SPECBATCH_E_NO_DEVICE,
        /// The device failed, and the pool is dead.
        DEVICE = SPECBATCH_E_DEVICE,
        /// A bug of the library, by which the pool is dead.
        INTERNAL = SPECBATCH_E_INTERNAL,
    }
}

impl Status {
    /// Its name in `specbatch.h`: "SPECBATCH_E_NOMEM" for example.
    pub fn name(self) -> &'static str {
        // SAFETY: any number may be asked for, and names are static strings.
        unsafe { call::name(sys::specbatch_status_name(self.0)) }.unwrap_or("unknown status")
    }

    /// Whether a pool that returned it is dead.
    pub fn is_fatal(self) -> bool {
        // SAFETY: any number may be asked about.
        unsafe { sys::specbatch_status_is_fatal(self.0) == 1 }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A failure: its status, and the library's line about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    status: Status,
    line: String,
}

/// What fallible functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(status: Status, line: String) -> Error {
        Error { status, line }
    }

    /// Why it failed, to decide by.
    pub fn status(&self) -> Status {
        self.status
    }

    /// One line that names the place, to be read.
    pub fn line(&self) -> &str {
        &self.line
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.line)
    }
}

impl std::error::Error for Error {}
