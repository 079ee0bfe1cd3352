//! Pools: what decodes requests.
//!
//! What may be inside a pool is one thread at a time. So its methods take `&mut self`, or the pool is
//! not Sync, and nothing else is needed: a callback cannot get at its own pool either, as that is
//! borrowed for the call. The two things that the library allows beside it are an `Interrupter`,
//! which knows whether its pool is still there, and results, which are independent.

use crate::call;
use crate::hooks::Keep;
use crate::interrupter::{Interrupter, Place};
use crate::{sys, Draft, Event, Events, Finish, Finished, MaskHandle, Model, PoolOptions, Request};
use crate::{RequestId, Result, Results, Token};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

constants! {
    /// Where a request is in its life.
    State {
        /// It waits for a slot in the caches.
        QUEUED = SPECBATCH_STATE_QUEUED,
        /// Its prompt is being computed.
        FILLING = SPECBATCH_STATE_FILLING,
        /// Rounds decode it.
        DECODING = SPECBATCH_STATE_DECODING,
        /// It can be collected.
        FINISHED = SPECBATCH_STATE_FINISHED,
    }
}

/// Where a request is. Times are from its submission on, and what has not happened counts until now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RequestState {
    /// Its place in its life.
    pub state: State,
    /// How it ended, if it has.
    pub finish: Option<Finish>,
    /// Tokens of its prompt.
    pub n_prompt: u64,
    /// Of those: computed so far, or found.
    pub n_filled: u64,
    /// Tokens that it has got.
    pub n_generated: u64,
    /// Until it got a slot.
    pub time_queued: Duration,
    /// Until its first token, if there is one.
    pub time_first_token: Option<Duration>,
    /// Until its end.
    pub time_total: Duration,
}

/// Names a pinned prefix of one pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pin(u64);

/// The mask of a request, or of its answers, until all of their results have been collected.
struct HeldMask {
    _mask: MaskHandle,
    end: RequestId,
    results_left: u64,
}

/// A pool of requests on one target. One thread at a time may use it, and it may be moved to others.
///
/// ```
/// # use specbatch::{Model, Pool, PoolOptions, Request};
/// # fn main() -> specbatch::Result<()> {
/// # let model = Model::open(specbatch::doctest_model())?;
/// let mut pool = Pool::new(&model, None, &PoolOptions::new().batch(2))?;
/// for (number, prompt) in ["smile", "family:", "flag"].into_iter().enumerate() {
///     pool.submit(&Request::text(prompt, 100).user(number))?;
/// }
/// let mut texts = vec![String::new(); 3];
/// while pool.step()? > 0 {
///     for event in pool.events() {
///         let event = event?;
///         texts[event.user] += &event.text.unwrap();
///     }
/// }
/// # for event in pool.events() {
/// #     let event = event?;
/// #     texts[event.user] += &event.text.unwrap();
/// # }
/// for result in pool.results() {
///     let result = result?;
///     assert_eq!(result.text(), Some(texts[result.user()].as_str()));
/// }
/// # Ok(())
/// # }
/// ```
pub struct Pool {
    raw: NonNull<sys::specbatch_pool>,
    keep: Keep,
    masks: BTreeMap<RequestId, HeldMask>,
    place: Arc<RwLock<Place>>,
}

// SAFETY: a pool may be used on any thread, by one at a time. What it calls is Send and Sync.
unsafe impl Send for Pool {}

impl Pool {
    /// Creates a pool. Without a draft it decodes plainly. It holds references of its own to both.
    ///
    /// # Errors
    /// `INVALID`, `OPTIONS`, `NOMEM`, `BUDGET`, `VOCAB` (draft and target have not the same one),
    /// `NO_DEVICE`, `UNSUPPORTED`, `DEVICE`.
    pub fn new(target: &Model, draft: Option<&Draft>, options: &PoolOptions) -> Result<Pool> {
        let (options, hooks) = options.raw();
        let mut keep = Keep::of(&hooks).and(target.keep());
        if let Some(draft) = draft {
            keep = keep.and(draft.keep());
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the handles are alive or NULL, and the hooks live in `keep`.
        let status = unsafe {
            sys::specbatch_pool_create(&mut raw, target.raw(), raw_draft(draft), &options)
        };
        let pool = NonNull::new(raw).map(|raw| Pool {
            raw,
            keep,
            masks: BTreeMap::new(),
            place: Arc::new(RwLock::new(Place(Some(raw)))),
        });
        call::created(status, pool)
    }

    /// The bytes that `new` would take for caches and buffers with these arguments.
    ///
    /// # Errors
    /// `INVALID`, `OPTIONS`, `VOCAB`.
    pub fn bytes(target: &Model, draft: Option<&Draft>, options: &PoolOptions) -> Result<u64> {
        let (options, _hooks) = options.raw();
        let mut bytes = 0;
        // SAFETY: as for `new`.
        call::checked(unsafe {
            sys::specbatch_pool_bytes(&mut bytes, target.raw(), raw_draft(draft), &options)
        })?;
        Ok(bytes)
    }

    fn raw(&self) -> *mut sys::specbatch_pool {
        self.raw.as_ptr()
    }

    /// Queues a request, at any time, and returns its number. All that it has is copied.
    ///
    /// # Errors
    /// `INVALID`, `OPTIONS`, `TOO_LONG`, `TOKEN`, `QUEUE_FULL`, `NO_TOKENIZER`, `UNSUPPORTED`,
    /// `NOMEM`, fatal.
    pub fn submit(&mut self, request: &Request<'_>) -> Result<RequestId> {
        let mut id = 0;
        request.with_raw(|raw| {
            // SAFETY: what the request points to lives during the call, and its mask for longer.
            let status = unsafe { sys::specbatch_pool_submit(self.raw(), raw, &mut id) };
            if let (sys::SPECBATCH_OK, Some(mask)) = (status, request.mask_handle()) {
                let (count, results_left) = request.counts();
                let held = HeldMask { _mask: mask.clone(), end: id + count, results_left };
                self.masks.insert(id, held);
            }
            call::checked(status)
        })?;
        Ok(id)
    }

    /// Ends a request with the tokens that it has. It is collected like any other.
    ///
    /// # Errors
    /// `NOT_FOUND` (unknown, or finished already), `NOMEM`, fatal.
    pub fn cancel(&mut self, id: RequestId) -> Result<()> {
        // SAFETY: the pool is alive and borrowed by nobody else, here and below.
        call::checked(unsafe { sys::specbatch_pool_cancel(self.raw(), id) })?;
        Ok(())
    }

    /// Runs one round. Returns how many requests are unfinished after it.
    ///
    /// # Errors
    /// `CANCELLED` (by the draft or a mask) and `INTERRUPTED`, after which it may be repeated;
    /// fatal.
    ///
    /// # Panics
    /// With the panic of a callback, after which it may be repeated too.
    pub fn step(&mut self) -> Result<usize> {
        let mut active = 0;
        // SAFETY: as above.
        call::checked(unsafe { sys::specbatch_pool_step(self.raw(), &mut active) })?;
        Ok(active)
    }

    /// Steps until no request is unfinished, or a step fails.
    ///
    /// # Errors
    /// As [`Pool::step`].
    pub fn run(&mut self) -> Result<()> {
        // SAFETY: as above.
        call::checked(unsafe { sys::specbatch_pool_run(self.raw()) })?;
        Ok(())
    }

    /// What ends a step or a run of this pool from anywhere.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter { place: self.place.clone() }
    }

    /// Writes tokens that a request has got since the last poll, and returns how many.
    ///
    /// # Errors
    /// `NOT_FOUND` (unknown, or collected already), fatal.
    pub fn poll(&mut self, id: RequestId, ids: &mut [Token]) -> Result<usize> {
        let mut n = 0;
        // SAFETY: as above; the buffer has room for ids.len().
        call::checked(unsafe {
            sys::specbatch_pool_poll(self.raw(), id, ids.as_mut_ptr(), ids.len(), &mut n)
        })?;
        Ok(n)
    }

    /// How many tokens wait for a poll.
    ///
    /// # Errors
    /// As [`Pool::poll`].
    pub fn waiting(&mut self, id: RequestId) -> Result<usize> {
        let mut n = 0;
        // SAFETY: as above.
        call::checked(unsafe {
            sys::specbatch_pool_poll(self.raw(), id, ptr::null_mut(), 0, &mut n)
        })?;
        Ok(n)
    }

    /// Where a request is.
    ///
    /// # Errors
    /// `NOT_FOUND` (unknown, or collected already), fatal.
    pub fn state(&mut self, id: RequestId) -> Result<RequestState> {
        let mut raw = sys::specbatch_request_state::default();
        // SAFETY: as above.
        call::checked(unsafe { sys::specbatch_pool_state(self.raw(), id, &mut raw) })?;
        let first = raw.time_first_token_ns;
        Ok(RequestState {
            state: State(raw.state),
            finish: finish(raw.finish),
            n_prompt: raw.n_prompt,
            n_filled: raw.n_filled,
            n_generated: raw.n_generated,
            time_queued: Duration::from_nanos(raw.time_queued_ns),
            time_first_token: (first > 0).then(|| Duration::from_nanos(first)),
            time_total: Duration::from_nanos(raw.time_total_ns),
        })
    }

    /// The next event, without a copy: it borrows the pool.
    ///
    /// # Errors
    /// `NOMEM` (nothing is lost), fatal.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>> {
        let mut raw = sys::specbatch_event::default();
        // SAFETY: as above.
        if !call::taken(unsafe { sys::specbatch_pool_next_event(self.raw(), &mut raw) })? {
            return Ok(None);
        }
        // SAFETY: what it points to lives until the next call on the pool, as `self` is borrowed.
        let (ids, text) =
            unsafe { (call::borrowed(raw.ids, raw.n_ids), call::text(raw.text, raw.text_length)) };
        Ok(Some(Event {
            id: raw.id,
            user: raw.user as usize,
            ids: ids.into(),
            text: text.map(Into::into),
            finish: finish(raw.finish),
            status: crate::Status(raw.status),
        }))
    }

    /// The events that there are now, with copies of their tokens and texts. Those of requests that
    /// are collected before are dropped, so read events first.
    pub fn events(&mut self) -> Events<'_> {
        Events { pool: Some(self) }
    }

    /// Takes the next finished request out of the pool.
    ///
    /// # Errors
    /// `NOMEM`, fatal when a dead pool has handed out what had finished.
    pub fn collect(&mut self) -> Result<Option<Finished>> {
        let mut raw = ptr::null_mut();
        // SAFETY: as above.
        let status = unsafe { sys::specbatch_pool_collect(self.raw(), &mut raw) };
        let result = NonNull::new(raw).map(|raw| Finished::new(raw, &self.keep));
        if let Some(result) = &result {
            self.release_mask(result.id());
        }
        Ok(if call::taken(status)? { result } else { None })
    }

    /// The finished requests that there are now.
    pub fn results(&mut self) -> Results<'_> {
        Results { pool: Some(self) }
    }

    /// A result has been collected, so its mask is not called again.
    fn release_mask(&mut self, id: RequestId) {
        let held = self.masks.range_mut(..=id).next_back().filter(|(_, held)| id < held.end);
        if let Some((&first, held)) = held {
            held.results_left -= 1;
            if held.results_left == 0 {
                self.masks.remove(&first);
            }
        }
    }

    /// Keeps room for a prefix of prompts, such as a system prompt, until it is unpinned.
    ///
    /// # Errors
    /// `INVALID` (the pool keeps nothing, or too few or too many ids), `TOKEN`, `BUDGET`, `NOMEM`,
    /// fatal.
    pub fn pin(&mut self, ids: &[Token]) -> Result<Pin> {
        let mut pin = 0;
        // SAFETY: as above; there are ids.len() ids.
        call::checked(unsafe {
            sys::specbatch_pool_pin(self.raw(), ids.as_ptr(), ids.len(), &mut pin)
        })?;
        Ok(Pin(pin))
    }

    /// Undoes a pin.
    ///
    /// # Errors
    /// `NOT_FOUND` (no such pin), fatal.
    pub fn unpin(&mut self, pin: Pin) -> Result<()> {
        // SAFETY: as above.
        call::checked(unsafe { sys::specbatch_pool_unpin(self.raw(), pin.0) })?;
        Ok(())
    }

    /// Saves what is kept of a sequence to a file. Returns how many of its tokens that covers.
    ///
    /// # Errors
    /// `INVALID`, `TOKEN`, `TOO_LONG`, `IO`, `NOMEM`, fatal. Nothing of the file is left then.
    pub fn save_session(&mut self, ids: &[Token], path: impl AsRef<Path>) -> Result<usize> {
        let path = call::path(path.as_ref())?;
        let mut kept = 0;
        let (start, n) = (ids.as_ptr(), ids.len());
        // SAFETY: as above; the path ends in NUL.
        call::checked(unsafe {
            sys::specbatch_pool_save_session(self.raw(), start, n, path.as_ptr(), &mut kept)
        })?;
        Ok(kept)
    }

    /// Loads a session. Returns its tokens: a prompt that begins with them is not computed again.
    ///
    /// # Errors
    /// `INVALID` (also of another model or numerics class), `IO`, `FORMAT`, `UNSUPPORTED`, `NOMEM`,
    /// fatal.
    pub fn load_session(&mut self, path: impl AsRef<Path>) -> Result<Vec<Token>> {
        let path = call::path(path.as_ref())?;
        call::filled(0, 0, |ids, room, n| {
            // SAFETY: as above; the buffer has the room that is given.
            unsafe { sys::specbatch_pool_load_session(self.raw(), path.as_ptr(), ids, room, n) }
        })
    }

    /// A counter of the pool, by its name.
    ///
    /// # Errors
    /// `INVALID` if there is a NUL in the name, or else `NOT_FOUND`.
    pub fn stat(&self, name: &str) -> Result<u64> {
        let name = call::terminated(name.as_bytes())?;
        let mut value = 0;
        // SAFETY: the pool is alive, and on this thread, as it is not Sync.
        call::checked(unsafe { sys::specbatch_pool_stat(self.raw(), name.as_ptr(), &mut value) })?;
        Ok(value)
    }

    /// All counters, with their names.
    pub fn stats(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        // SAFETY: the function takes nothing, and any number may be asked for.
        let names = (0..unsafe { sys::specbatch_stat_count() })
            .filter_map(|i| unsafe { call::name(sys::specbatch_stat_name(i)) });
        names.filter_map(move |name| Some((name, self.stat(name).ok()?)))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.place.write().unwrap_or_else(PoisonError::into_inner).0 = None;
        // SAFETY: the pool is this value's own, nobody is inside it, and no interrupter gets at it.
        unsafe { sys::specbatch_pool_free(self.raw()) };
        call::resume();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

fn raw_draft(draft: Option<&Draft>) -> *mut sys::specbatch_draft {
    draft.map_or(ptr::null_mut(), Draft::raw)
}

fn finish(code: i32) -> Option<Finish> {
    (code != 0).then_some(Finish(code))
}
