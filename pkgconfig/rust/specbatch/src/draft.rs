//! Drafts: what proposes tokens. A wrong proposal costs time and never changes a token.
//!
//! A draft of the caller's own is a `DraftModel`. The library holds it in a box, by the functions of
//! `Ops`, until the last reference to the draft is gone.

use crate::call::{self, Raw};
use crate::hooks::Keep;
use crate::{sys, Model, RequestId, Result, Token};
use std::fmt;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::path::Path;
use std::ptr::{self, NonNull};

/// How [`Draft::from_ngrams`] looks for what followed.
#[derive(Clone, Copy, Debug, Default)]
pub struct NgramOptions {
    raw: Raw<sys::specbatch_ngram_options>,
}

impl NgramOptions {
    /// The defaults.
    pub fn new() -> NgramOptions {
        NgramOptions::default()
    }

    setters! {
        /// The most tokens that are compared: 1..16; 0: 8.
        field max_match: i32,
        /// The fewest tokens that have to be equal; 0: 2.
        field min_match: i32,
    }
}

/// How [`make_table`] makes a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableOptions {
    raw: Raw<sys::specbatch_table_options>,
}

impl TableOptions {
    /// The defaults.
    pub fn new() -> TableOptions {
        TableOptions::default()
    }

    setters! {
        /// Tokens of a context at most: 1..8; 0: 4.
        field max_match: i32,
        /// And at least; 0: 1.
        field min_match: i32,
        /// Contexts that occur less often are left out; 0: 2.
        field min_count: i32,
    }
}

/// Writes a table of n-grams for [`Draft::from_table`]: what most often follows which tokens in
/// `ids`, which are texts that `model` has tokenized.
///
/// # Errors
/// `INVALID` (no ids), `TOKEN`, `OPTIONS`, `NOMEM`, `IO`.
pub fn make_table(
    to: impl AsRef<Path>,
    model: &Model,
    ids: &[Token],
    options: TableOptions,
) -> Result<()> {
    let to = call::path(to.as_ref())?;
    let (start, options) = (ids.as_ptr(), &options.raw.0);
    // SAFETY: the path ends in NUL, the model is alive, and there are ids.len() ids.
    let status =
        unsafe { sys::specbatch_table_make(to.as_ptr(), model.raw(), start, ids.len(), options) };
    call::checked(status)?;
    Ok(())
}

/// What proposes tokens. A clone is another reference to the same draft, which may serve any number
/// of pools and threads at once.
pub struct Draft {
    raw: NonNull<sys::specbatch_draft>,
    keep: Keep,
}

// SAFETY: drafts are immutable and their references are counted atomically, by the header; and what
// is the caller's own in one is a `DraftModel`, which is Send and Sync.
unsafe impl Send for Draft {}
// SAFETY: the same.
unsafe impl Sync for Draft {}

impl Draft {
    /// Calls a function that creates a draft. `keep` lives as long as the draft then.
    fn create(
        keep: Keep,
        call: impl FnOnce(*mut *mut sys::specbatch_draft) -> i32,
    ) -> Result<Draft> {
        let mut raw = ptr::null_mut();
        let status = call(&mut raw);
        call::created(status, NonNull::new(raw).map(|raw| Draft { raw, keep }))
    }

    /// A draft model, which should be a small one of the target's family.
    ///
    /// # Errors
    /// `NOMEM`.
    pub fn from_model(model: &Model) -> Result<Draft> {
        Draft::create(model.keep().clone(), |out| {
            // SAFETY: the model is alive, and the draft takes a reference of its own.
            unsafe { sys::specbatch_draft_from_model(out, model.raw()) }
        })
    }

    /// Proposes what followed the last tokens at an earlier place of the same sequence.
    ///
    /// # Errors
    /// `INVALID` (an option), `NOMEM`.
    pub fn from_ngrams(options: NgramOptions) -> Result<Draft> {
        Draft::create(Keep::default(), |out| {
            // SAFETY: the options are copied.
            unsafe { sys::specbatch_draft_from_ngrams(out, &options.raw.0) }
        })
    }

    /// Proposes what most often followed the last tokens, by a file of [`make_table`].
    ///
    /// # Errors
    /// `IO`, `FORMAT`, `UNSUPPORTED` (another version of the format), `NOMEM`.
    pub fn from_table(path: impl AsRef<Path>) -> Result<Draft> {
        let path = call::path(path.as_ref())?;
        Draft::create(Keep::default(), |out| {
            // SAFETY: the path ends in NUL.
            unsafe { sys::specbatch_draft_from_table(out, path.as_ptr()) }
        })
    }

    /// A draft of your own.
    ///
    /// ```
    /// use specbatch::{Draft, DraftModel, DraftRows};
    /// use std::ops::ControlFlow;
    ///
    /// /// Proposes the last token again.
    /// struct Again;
    ///
    /// impl DraftModel for Again {
    ///     fn propose(&self, rows: DraftRows<'_>) -> ControlFlow<()> {
    ///         for mut row in rows {
    ///             let last = *row.tokens().last().unwrap();
    ///             row.propose(&vec![last; row.wanted()]);
    ///         }
    ///         ControlFlow::Continue(())
    ///     }
    /// }
    ///
    /// # fn main() -> specbatch::Result<()> {
    /// let draft = Draft::from_ops(Again)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NOMEM`.
    pub fn from_ops<D: DraftModel + 'static>(model: D) -> Result<Draft> {
        let user = Box::into_raw(Box::new(model));
        let ops = sys::specbatch_draft_ops {
            propose: Some(propose::<D>),
            retire: Some(retire::<D>),
            release: Some(release::<D>),
            user: user.cast(),
            ..Default::default()
        };
        Draft::create(Keep::default(), |out| {
            // SAFETY: the functions fit the box, which the library has from here on if it succeeds.
            let status = unsafe { sys::specbatch_draft_from_ops(out, &ops) };
            if status < 0 {
                // SAFETY: it is still this function's.
                drop(unsafe { Box::from_raw(user) });
            }
            status
        })
    }

    /// A draft of up to 32 others: each row has the proposals of the first that has any for it.
    ///
    /// # Errors
    /// `INVALID` (none or too many, or a kind twice that may be there once), `NOMEM`.
    pub fn from_list(drafts: &[&Draft]) -> Result<Draft> {
        let list: Vec<_> = drafts.iter().map(|draft| draft.raw()).collect();
        let keep = drafts.iter().fold(Keep::default(), |keep, draft| keep.and(&draft.keep));
        Draft::create(keep, |out| {
            // SAFETY: the drafts are alive, and the new one takes references of its own.
            unsafe { sys::specbatch_draft_from_list(out, list.as_ptr(), list.len()) }
        })
    }

    pub(crate) fn raw(&self) -> *mut sys::specbatch_draft {
        self.raw.as_ptr()
    }

    pub(crate) fn keep(&self) -> &Keep {
        &self.keep
    }
}

impl Clone for Draft {
    fn clone(&self) -> Draft {
        // SAFETY: the draft is alive; the reference that is added is the clone's.
        unsafe { sys::specbatch_draft_retain(self.raw()) };
        Draft { raw: self.raw, keep: self.keep.clone() }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's own.
        unsafe { sys::specbatch_draft_release(self.raw()) };
        call::resume();
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Draft")
    }
}

/// A draft of your own, for [`Draft::from_ops`]. It is called on the threads that are inside the
/// pools that use it, on several at once if the pools are.
pub trait DraftModel: Send + Sync {
    /// Proposes for all rows of a round that may have proposals. After `Break`, or a panic, the
    /// step fails with `CANCELLED` or goes on with the panic; the round has changed nothing.
    fn propose(&self, rows: DraftRows<'_>) -> ControlFlow<()>;

    /// A request that `propose` has seen has ended. `user` is [`Request::user`](crate::Request::user).
    fn retire(&self, request: RequestId, user: usize) {
        let _ = (request, user);
    }
}

rows! {
    /// The rows of a round, each once.
    DraftRows,
    /// A sequence to propose for.
    DraftRow = specbatch_draft_row,
    /// The sequence so far, the prompt included.
    tokens
}

impl DraftRow<'_> {
    /// How many proposals are wanted at most.
    pub fn wanted(&self) -> usize {
        self.raw.k as usize
    }

    /// Proposes these tokens, as many of them as are wanted.
    pub fn propose(&mut self, ids: &[Token]) {
        let n = ids.len().min(self.wanted());
        // SAFETY: there is room for `wanted` ids, and nobody else has it.
        unsafe { ptr::copy_nonoverlapping(ids.as_ptr(), self.raw.out, n) };
        self.raw.n_out = n as i32;
    }
}

/// # Safety
/// `user` is the box of `from_ops`, as for the two below, and the rows are by the header's rules.
unsafe extern "C" fn propose<D: DraftModel>(
    user: *mut c_void,
    rows: *const *mut sys::specbatch_draft_row,
    n_rows: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    let (model, rows) = unsafe { (&*(user as *const D), call::borrowed(rows, n_rows)) };
    call::guarded(1, || model.propose(DraftRows { rows: rows.iter() }).is_break().into())
}

unsafe extern "C" fn retire<D: DraftModel>(user: *mut c_void, request: u64, tag: *mut c_void) {
    // SAFETY: the caller's promise.
    let model = unsafe { &*(user as *const D) };
    call::guarded((), || model.retire(request, tag as usize));
}

unsafe extern "C" fn release<D: DraftModel>(user: *mut c_void) {
    // SAFETY: the caller's promise; nothing is called afterwards.
    call::guarded((), || drop(unsafe { Box::from_raw(user as *mut D) }));
}
