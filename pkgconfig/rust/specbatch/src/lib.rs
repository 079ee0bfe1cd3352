//! Fast and exact text generation by batch speculative decoding, with libspecbatch.
//!
//! A small draft model proposes tokens for a batch of sequences, the target model verifies all of
//! them in one pass, and each sequence keeps the proposals up to the first wrong one. Whatever the
//! policy, the batch, the draft, the order of arrival or the number of threads: the tokens and
//! log-probabilities of a request are those of plain decoding of that request alone, bit for bit.
//!
//! ```
//! use specbatch::{Draft, Model, NgramOptions, Pool, PoolOptions, Request};
//!
//! # fn main() -> specbatch::Result<()> {
//! # let path = specbatch::doctest_model();
//! let model = Model::open(path)?;
//! let draft = Draft::from_ngrams(NgramOptions::new())?;
//! let mut pool = Pool::new(&model, Some(&draft), &PoolOptions::new())?;
//! pool.submit(&Request::text("smile", 100))?;
//! pool.run()?;
//! for result in pool.results() {
//!     println!("{}", result?.text().unwrap());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Model`] is an opened checkpoint. A [`Draft`] is what proposes tokens: a model, the text
//! itself, or a [`DraftModel`] of yours. A [`Pool`] decodes requests on a target model. Models and
//! drafts are shared among threads and cheap to clone; a pool is for one thread at a time, and may
//! be moved to another; a [`Finished`] request outlives its pool.
//!
//! A number or a flag is named as in the C header `specbatch.h`, which is the manual for whatever is
//! said here in one line only. Where an option is not set it has the header's default.
//!
//! # Panics
//! A panic in one of your callbacks does not cross the library: it is caught, the library is told to
//! stop, and it goes on from the call that you made, such as [`Pool::step`]. The pool stays usable.

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(clippy::undocumented_unsafe_blocks)]

use specbatch_sys as sys;

#[macro_use]
mod macros;
#[macro_use]
mod hooks;
mod audit;
mod call;
mod chat;
mod draft;
mod error;
mod event;
mod finished;
mod interrupter;
mod mask;
mod model;
mod options;
mod pool;
mod request;
mod text;

pub use audit::{audit, AuditReport};
pub use chat::{ChatFlags, ChatFormat, ChatOptions, Effort, Message};
pub use draft::{make_table, Draft, DraftModel, DraftRow, DraftRows, NgramOptions, TableOptions};
pub use error::{Error, Result, Status};
pub use event::{Event, Events};
pub use finished::{Alternatives, Finish, Finished, Results};
pub use hooks::{Allocator, LogLevel};
pub use interrupter::Interrupter;
pub use mask::{Mask, MaskHandle, MaskRow, MaskRows};
pub use model::{convert, Compute, Device, Kv, Model, ModelOptions, Prefill, Simd, Weights};
pub use options::{Policy, PoolOptions};
pub use pool::{Pin, Pool, RequestState, State};
pub use request::{Request, Sampling};
pub use text::{TextFlags, TextStream};

/// A token's id: an index into the vocabulary.
pub type Token = i32;

/// The number of a request in its pool, by which it is cancelled, polled and looked up.
pub type RequestId = u64;

/// The version of the library at run time: major * 10000 + minor * 100 + patch.
pub fn version() -> i32 {
    // SAFETY: the function takes nothing, and may be called at any time.
    unsafe { sys::specbatch_version() }
}

/// The same as text: "0.2.0" for example.
pub fn version_string() -> &'static str {
    // SAFETY: as above; the string is static.
    unsafe { call::name(sys::specbatch_version_string()) }.unwrap_or("")
}

/// The number of the ABI of the library at run time, which its soname carries.
pub fn abi_version() -> i32 {
    // SAFETY: as above.
    unsafe { sys::specbatch_abi_version() }
}

/// Whether this build of the library has a feature on this machine: "cpu", "cuda", "avx2", "avx512",
/// "avx512_bf16" or "amx".
pub fn has(feature: &str) -> bool {
    let found = call::terminated(feature.as_bytes())
        // SAFETY: the name ends in NUL.
        .map(|name| unsafe { sys::specbatch_has(name.as_ptr()) });
    found == Ok(1)
}

/// The checkpoint that examples in these pages open: `SPECBATCH_DOC_MODEL`, or the one of the source
/// tree whose answers are emoji.
#[doc(hidden)]
pub fn doctest_model() -> std::path::PathBuf {
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../test/data/models/emoji");
    std::env::var_os("SPECBATCH_DOC_MODEL").map_or(tree.into(), Into::into)
}
