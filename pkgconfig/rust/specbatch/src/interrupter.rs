//! What ends a step of a pool from elsewhere: the only thing that knows a pool and does not own it.

use crate::sys;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, RwLock};

/// The pool that an interrupter means, until it is dropped.
pub(crate) struct Place(pub(crate) Option<NonNull<sys::specbatch_pool>>);

// SAFETY: only specbatch_pool_interrupt is called through it, which any thread may call.
unsafe impl Send for Place {}
// SAFETY: the same.
unsafe impl Sync for Place {}

/// Ends a step or a run of a pool: on any thread, in a callback, and in a signal handler. It may
/// outlive the pool.
#[derive(Clone)]
pub struct Interrupter {
    pub(crate) place: Arc<RwLock<Place>>,
}

impl Interrupter {
    /// Ends the step that is under way, or the next one, with `INTERRUPTED`. The pool goes on with
    /// the next step or run. It does nothing when the pool has been dropped.
    pub fn interrupt(&self) {
        // It never waits: the lock is taken for writing only when the pool is being dropped.
        if let Ok(Place(Some(pool))) = self.place.try_read().as_deref() {
            // SAFETY: the pool is not freed while the lock is held.
            unsafe { sys::specbatch_pool_interrupt(pool.as_ptr()) };
        }
    }
}

impl fmt::Debug for Interrupter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupter")
    }
}
