//! The border between Rust and C: results of calls, panics of callbacks, strings and slices.
//!
//! A panic must not unwind through the library. So every callback runs in `guarded`, which keeps the
//! panic in a place of this thread and tells the library to stop; and every call that may have run
//! callbacks ends in `checked` or `resume`, which lets the panic go on in the caller's frames.
//! Callbacks run on the thread that made the call, so the place needs no lock.

use crate::{sys, Error, Result, Status};
use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::os::unix::ffi::OsStrExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::{mem, slice, str, thread};

thread_local! {
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
}

/// Runs a callback. If it panics, that is kept, and `otherwise` returned to the library.
pub(crate) fn guarded<T>(otherwise: T, callback: impl FnOnce() -> T) -> T {
    // What the callback has left half done is its own: the library's rows are copied or checked.
    panic::catch_unwind(AssertUnwindSafe(callback)).unwrap_or_else(|payload| {
        let mut payload = Some(payload);
        let _ = PANIC.try_with(|place| {
            let first = place.take();
            place.set(first.or_else(|| payload.take()));
        });
        // A second panic is left over, or any if the thread is ending. To drop it could panic again.
        mem::forget(payload);
        otherwise
    })
}

/// Lets a panic of a callback go on, if one was kept and no other is under way.
pub(crate) fn resume() {
    if let Ok(Some(payload)) = PANIC.try_with(Cell::take) {
        if thread::panicking() {
            mem::forget(payload);
        } else {
            panic::resume_unwind(payload);
        }
    }
}

/// The value of a call that has returned a status: a number of 0 or more, or an error.
pub(crate) fn checked(status: i32) -> Result<i32> {
    if status >= 0 {
        resume();
        return Ok(status);
    }
    // SAFETY: the line ends in NUL, and is copied before the next call on this thread.
    let line = unsafe { CStr::from_ptr(sys::specbatch_last_error()) };
    let line = line.to_string_lossy().into_owned();
    resume();
    Err(Error::new(Status(status), line))
}

/// What a call has created that has returned this status. It is dropped if a panic goes on here.
pub(crate) fn created<T>(status: i32, object: Option<T>) -> Result<T> {
    checked(status)?;
    Ok(object.expect("the library creates something when it succeeds"))
}

/// The same for a call that takes something out of a pool: false if there is nothing.
pub(crate) fn taken(status: i32) -> Result<bool> {
    if status == sys::SPECBATCH_E_EMPTY {
        resume();
        return Ok(false);
    }
    checked(status).map(|_| true)
}

/// What a call has written that is asked with a buffer, its size and a place for the number needed:
/// at first a buffer for `guess` elements, and if that is too small one that is not. `behind` more
/// are for the NUL behind a text.
pub(crate) fn filled<T: Clone + Default>(
    guess: usize,
    behind: usize,
    mut call: impl FnMut(*mut T, usize, &mut usize) -> i32,
) -> Result<Vec<T>> {
    let mut n = 0;
    let mut buffer = vec![T::default(); guess + behind];
    let mut status = call(buffer.as_mut_ptr(), buffer.len(), &mut n);
    if status == sys::SPECBATCH_E_BUFFER {
        buffer = vec![T::default(); n + behind];
        status = call(buffer.as_mut_ptr(), buffer.len(), &mut n);
    }
    checked(status)?;
    buffer.truncate(n);
    Ok(buffer)
}

/// The text of such a call.
pub(crate) fn filled_text(
    guess: usize,
    mut call: impl FnMut(*mut c_char, usize, &mut usize) -> i32,
) -> Result<String> {
    let bytes = filled(guess, 1, |buffer: *mut u8, room, n| call(buffer.cast(), room, n))?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// A string that ends in NUL; it may have none before that.
pub(crate) fn terminated(text: &[u8]) -> Result<CString> {
    CString::new(text)
        .map_err(|_| Error::new(Status::INVALID, "there is a NUL in a name".to_string()))
}

/// A file name for C.
pub(crate) fn path(path: &Path) -> Result<CString> {
    terminated(path.as_os_str().as_bytes())
}

/// A slice of the library's, which has NULL where there is nothing.
///
/// # Safety
/// `start` is NULL, or `n` elements that nobody changes during 'a begin there.
pub(crate) unsafe fn borrowed<'a, T>(start: *const T, n: usize) -> &'a [T] {
    if start.is_null() || n == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(start, n) }
}

/// A text of the library's, or None for NULL.
///
/// # Safety
/// As for `borrowed`.
pub(crate) unsafe fn text<'a>(start: *const c_char, length: usize) -> Option<&'a str> {
    if start.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { borrowed(start.cast::<u8>(), length) };
    Some(str::from_utf8(bytes).expect("the library's texts are UTF-8"))
}

/// A name of the library's, or None for NULL.
///
/// # Safety
/// `start` is NULL, or a string that ends in NUL and that nobody changes during 'a.
pub(crate) unsafe fn name<'a>(start: *const c_char) -> Option<&'a str> {
    if start.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(start) }.to_str().ok()
}

/// Options as the header has them, without any of their pointers: these are filled in on a copy for
/// the time of a call. So the value may go to other threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Raw<T>(pub(crate) T);

// SAFETY: what is in it are numbers and NULL.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: the same.
unsafe impl<T> Sync for Raw<T> {}
