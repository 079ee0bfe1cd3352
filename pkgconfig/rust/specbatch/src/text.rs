//! Text to tokens, tokens to text, and text piece by piece.

use crate::hooks::Keep;
use crate::{call, sys, Model, Result, Token};
use std::fmt;
use std::os::raw::c_char;
use std::ptr::{self, NonNull};

flags! {
    /// How text becomes tokens, and tokens text.
    TextFlags {
        /// Tokenizing: leave out what the tokenizer's template adds.
        NO_BOS = SPECBATCH_TEXT_NO_BOS,
        /// Tokenizing: take special tokens in the text for ordinary text.
        PLAIN_SPECIAL = SPECBATCH_TEXT_PLAIN_SPECIAL,
        /// Detokenizing: keep special tokens in the text.
        KEEP_SPECIAL = SPECBATCH_TEXT_KEEP_SPECIAL,
    }
}

impl Model {
    /// Converts text to tokens.
    ///
    /// # Errors
    /// `NO_TOKENIZER`, `INVALID` (a flag that is not for this), `UNSUPPORTED`, `NOMEM`.
    pub fn tokenize(&self, text: &str, flags: TextFlags) -> Result<Vec<Token>> {
        let start = text.as_ptr().cast();
        call::filled(text.len() / 2 + 8, 0, |ids, room, n| {
            // SAFETY: the text and the buffer have the lengths that are given.
            unsafe { sys::specbatch_tokenize(self.raw(), start, text.len(), flags.0, ids, room, n) }
        })
    }

    /// Converts tokens to text. Bytes that form no UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// `NO_TOKENIZER`, `INVALID` (a flag that is not for this), `NOMEM`.
    pub fn detokenize(&self, ids: &[Token], flags: TextFlags) -> Result<String> {
        let (start, length) = (ids.as_ptr(), ids.len());
        call::filled_text(length * 6, |text, room, n| {
            // SAFETY: the ids and the buffer have the lengths that are given.
            unsafe { sys::specbatch_detokenize(self.raw(), start, length, flags.0, text, room, n) }
        })
    }

    /// One token as the vocabulary's file spells it.
    ///
    /// # Errors
    /// `NO_TOKENIZER`, `TOKEN` (no token has this id).
    pub fn token_text(&self, id: Token) -> Result<String> {
        call::filled_text(31, |text, room, n| {
            // SAFETY: the buffer has the length that is given.
            unsafe { sys::specbatch_token_text(self.raw(), id, text, room, n) }
        })
    }
}

/// Makes text of a growing sequence of tokens, piece by piece and never half a character.
///
/// ```
/// # use specbatch::{Model, TextFlags, TextStream};
/// # fn main() -> specbatch::Result<()> {
/// # let model = Model::open(specbatch::doctest_model())?;
/// let mut stream = TextStream::new(&model, TextFlags::NONE)?;
/// let mut text = String::new();
/// for id in model.tokenize("smile 😀", TextFlags::NONE)? {
///     text += stream.push(&[id])?;
/// }
/// text += stream.finish()?;
/// assert_eq!(text, "smile 😀");
/// # Ok(())
/// # }
/// ```
pub struct TextStream {
    raw: NonNull<sys::specbatch_text_stream>,
    _keep: Keep,
}

// SAFETY: a stream may be used on any thread, by one at a time: its methods take `&mut self`.
unsafe impl Send for TextStream {}
// SAFETY: the same.
unsafe impl Sync for TextStream {}

impl TextStream {
    /// A stream of this model's text, with flags of [`Model::detokenize`].
    ///
    /// # Errors
    /// `NO_TOKENIZER`, `INVALID` (a flag that is not for this), `NOMEM`.
    pub fn new(model: &Model, flags: TextFlags) -> Result<TextStream> {
        let mut raw = ptr::null_mut();
        // SAFETY: the model is alive, and the stream holds a reference to it.
        let status = unsafe { sys::specbatch_text_stream_create(&mut raw, model.raw(), flags.0) };
        let stream = NonNull::new(raw).map(|raw| TextStream { raw, _keep: model.keep().clone() });
        call::created(status, stream)
    }

    /// Adds tokens. Returns the text that they have completed, which may be "".
    ///
    /// # Errors
    /// `NOMEM`; the stream is as before.
    pub fn push(&mut self, ids: &[Token]) -> Result<&str> {
        let raw = self.raw.as_ptr();
        self.piece(|text, length| {
            // SAFETY: the stream is alive, and nobody else is inside it; the ids are ids.len().
            unsafe { sys::specbatch_text_stream_push(raw, ids.as_ptr(), ids.len(), text, length) }
        })
    }

    /// Ends the text, and returns what was held back. The next token begins another text.
    ///
    /// # Errors
    /// `NOMEM`; the stream is as before.
    pub fn finish(&mut self) -> Result<&str> {
        let raw = self.raw.as_ptr();
        // SAFETY: as above.
        self.piece(|text, length| unsafe { sys::specbatch_text_stream_finish(raw, text, length) })
    }

    fn piece(&mut self, call: impl FnOnce(&mut *const c_char, &mut usize) -> i32) -> Result<&str> {
        let (mut text, mut length) = (ptr::null(), 0);
        call::checked(call(&mut text, &mut length))?;
        // SAFETY: the text is borrowed until the next call on the stream, as `self` is.
        Ok(unsafe { call::text(text, length) }.unwrap_or(""))
    }
}

impl Drop for TextStream {
    fn drop(&mut self) {
        // SAFETY: the stream is this value's own.
        unsafe { sys::specbatch_text_stream_free(self.raw.as_ptr()) };
        call::resume();
    }
}

impl fmt::Debug for TextStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TextStream")
    }
}
