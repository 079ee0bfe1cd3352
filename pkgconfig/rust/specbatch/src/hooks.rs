//! Functions of the caller's for memory, log and progress, which options of models and pools have.
//!
//! The library calls the memory and log functions of a model until its last reference is gone, and
//! those of a pool until its last result is. Pools, drafts, text streams and results hold references
//! to models. So each of these objects has a `Keep`: the hooks that must live as long as it does.

use crate::call;
use std::ffi::CStr;
use std::fmt;
use std::ops::ControlFlow;
use std::os::raw::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

constants! {
    /// How bad a line of the log is.
    LogLevel {
        /// Something has failed.
        ERROR = SPECBATCH_LOG_ERROR,
        /// Something is not as it should be.
        WARN = SPECBATCH_LOG_WARN,
        /// News.
        INFO = SPECBATCH_LOG_INFO,
    }
}

/// Where memory comes from. A panic in it counts as a failed allocation, and goes on from the call
/// that needed the memory.
///
/// # Safety
/// What `allocate` returns is NULL, or `size` bytes aligned to `align` that nobody else uses until
/// `free` is called.
pub unsafe trait Allocator: Send + Sync {
    /// Returns `size` bytes aligned to `align`, a power of two of at most 64; or NULL.
    fn allocate(&self, size: usize, align: usize) -> *mut u8;

    /// Frees them.
    ///
    /// # Safety
    /// `start` was returned by `allocate` for exactly `size` bytes, and is freed once.
    unsafe fn free(&self, start: *mut u8, size: usize);
}

type Log = dyn Fn(LogLevel, &str) + Send + Sync;
pub(crate) type Progress<'a> = dyn Fn(u64, u64) -> ControlFlow<()> + 'a;

/// The memory and log functions of some options.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) allocator: Option<Arc<dyn Allocator>>,
    pub(crate) log: Option<Arc<Log>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

/// Hooks that are called for as long as the object that has this lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keep(Vec<Arc<Hooks>>);

impl Keep {
    pub(crate) fn of(hooks: &Arc<Hooks>) -> Keep {
        Keep(vec![hooks.clone()])
    }

    pub(crate) fn and(mut self, other: &Keep) -> Keep {
        for hooks in &other.0 {
            if !self.0.iter().any(|kept| Arc::ptr_eq(kept, hooks)) {
                self.0.push(hooks.clone());
            }
        }
        self
    }
}

/// Fills the hooks' fields of model or pool options.
macro_rules! install {
    ($raw:ident, $hooks:expr) => {{
        let user = std::sync::Arc::as_ptr($hooks) as *mut std::os::raw::c_void;
        if $hooks.allocator.is_some() {
            $raw.alloc = Some($crate::hooks::allocate);
            $raw.free = Some($crate::hooks::free);
            $raw.alloc_user = user;
        }
        if $hooks.log.is_some() {
            $raw.log = Some($crate::hooks::log);
            $raw.log_user = user;
        }
    }};
}

/// The methods of options that have hooks.
macro_rules! hook_setters {
    () => {
        /// Where memory comes from, in place of the C library.
        #[must_use]
        pub fn allocator(mut self, allocator: impl $crate::Allocator + 'static) -> Self {
            self.hooks.allocator = Some(std::sync::Arc::new(allocator));
            self
        }

        /// Receives the lines of the log. It may not call the library.
        #[must_use]
        pub fn log(mut self, log: impl Fn($crate::LogLevel, &str) + Send + Sync + 'static) -> Self {
            self.hooks.log = Some(std::sync::Arc::new(log));
            self
        }
    };
}

/// # Safety
/// `user` are hooks with an allocator, for all three of these (the last: with a log).
pub(crate) unsafe extern "C" fn allocate(
    user: *mut c_void,
    size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let hooks = unsafe { &*(user as *const Hooks) };
    let allocate = || hooks.allocator.as_ref().map(|own| own.allocate(size, align));
    call::guarded(None, allocate).unwrap_or(ptr::null_mut()).cast()
}

pub(crate) unsafe extern "C" fn free(user: *mut c_void, start: *mut c_void, size: usize) {
    // SAFETY: the caller's promise.
    let hooks = unsafe { &*(user as *const Hooks) };
    call::guarded((), || {
        if let Some(own) = &hooks.allocator {
            // SAFETY: the library frees what it got, once, and with its size.
            unsafe { own.free(start.cast(), size) }
        }
    });
}

pub(crate) unsafe extern "C" fn log(user: *mut c_void, level: i32, line: *const c_char) {
    // SAFETY: the caller's promise; the line ends in NUL.
    let (hooks, line) = unsafe { (&*(user as *const Hooks), CStr::from_ptr(line)) };
    call::guarded((), || {
        if let Some(log) = &hooks.log {
            log(LogLevel(level), &line.to_string_lossy());
        }
    });
}

/// # Safety
/// `user` is a `&Progress` that lives during the call.
pub(crate) unsafe extern "C" fn progress(user: *mut c_void, done: u64, total: u64) -> i32 {
    // SAFETY: the caller's promise.
    let progress = unsafe { *(user as *const &Progress<'_>) };
    call::guarded(1, || progress(done, total).is_break().into())
}
