//! Masks: what a request may generate, such as a grammar.

use crate::{call, sys, Token};
use std::fmt;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::slice;
use std::sync::Arc;

/// What may be generated: a pure function of the request and the tokens. It is asked for positions
/// behind proposals too, where it may find tokens that it has not allowed.
pub trait Mask: Send + Sync {
    /// Forbids what may not follow in each row, end-of-sequence ids among them. After `Break`, or a
    /// panic, the step fails with `CANCELLED` or goes on with the panic, and may be repeated.
    fn allow(&self, rows: MaskRows<'_>) -> ControlFlow<()>;
}

type Allow = unsafe extern "C" fn(*mut c_void, *const *mut sys::specbatch_mask_row, usize) -> i32;

/// A mask that requests can have. Those with the same handle, or clones of one, are asked for
/// together.
#[derive(Clone)]
pub struct MaskHandle {
    mask: Arc<dyn Mask>,
    allow: Allow,
}

impl MaskHandle {
    /// A handle of this mask.
    pub fn new<M: Mask + 'static>(mask: M) -> MaskHandle {
        MaskHandle { mask: Arc::new(mask), allow: allow::<M> }
    }

    pub(crate) fn raw(&self) -> sys::specbatch_mask {
        sys::specbatch_mask {
            allow: Some(self.allow),
            user: Arc::as_ptr(&self.mask) as *mut c_void,
            ..Default::default()
        }
    }
}

impl fmt::Debug for MaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MaskHandle")
    }
}

rows! {
    /// The positions of a call, each once.
    MaskRows,
    /// A position of a request.
    MaskRow = specbatch_mask_row,
    /// All tokens before the position: the prompt, the answer, and what is proposed.
    tokens
}

impl MaskRow<'_> {
    /// Those of the prompt.
    pub fn prompt(&self) -> &[Token] {
        &self.tokens()[..self.raw.n_prompt]
    }

    /// Those behind the prompt: first what the answer has for certain, then what is proposed.
    pub fn answer_and_proposed(&self) -> (&[Token], &[Token]) {
        self.tokens()[self.raw.n_prompt..].split_at(self.raw.n_answer)
    }

    /// One bit for each id: bit `id % 32` of word `id / 32`. To clear one forbids the id.
    pub fn bits(&mut self) -> &mut [u32] {
        if self.raw.n_words == 0 {
            return &mut [];
        }
        // SAFETY: there are so many words, which are this row's own.
        unsafe { slice::from_raw_parts_mut(self.raw.allowed, self.raw.n_words) }
    }

    /// Forbids an id.
    pub fn forbid(&mut self, id: Token) {
        if let Some(word) = self.bits().get_mut(id as usize / 32) {
            *word &= !(1 << (id as u32 % 32));
        }
    }

    /// Forbids all ids but these, as far as they were allowed.
    pub fn allow_only(&mut self, ids: &[Token]) {
        let mut kept: Vec<(usize, u32)> = Vec::with_capacity(ids.len());
        let bits = self.bits();
        for &id in ids {
            let (word, bit) = (id as usize / 32, 1 << (id as u32 % 32));
            if bits.get(word).map_or(false, |bits| bits & bit != 0) {
                kept.push((word, bit));
            }
        }
        bits.fill(0);
        kept.iter().for_each(|(word, bit)| bits[*word] |= bit);
    }
}

/// # Safety
/// `user` is the `M` of a handle that lives, and the rows are by the header's rules.
unsafe extern "C" fn allow<M: Mask>(
    user: *mut c_void,
    rows: *const *mut sys::specbatch_mask_row,
    n_rows: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    let (mask, rows) = unsafe { (&*(user as *const M), call::borrowed(rows, n_rows)) };
    call::guarded(1, || mask.allow(MaskRows { rows: rows.iter() }).is_break().into())
}
