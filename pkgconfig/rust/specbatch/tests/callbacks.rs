//! Callbacks are called with what the header says; a panic in one goes on from the caller's own call,
//! and leaves the pool usable.

#![deny(unsafe_op_in_unsafe_fn)]

mod common;

use common::{folder, model, path, random_pair, PROMPTS};
use specbatch::*;
use std::alloc::{alloc, dealloc, Layout};
use std::ops::ControlFlow::{self, Break, Continue};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// The message of the panic by which `call` is left.
fn panic_of<T>(call: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(call)).err().expect("no panic came through");
    payload.downcast_ref::<&str>().expect("another panic").to_string()
}

#[derive(Default)]
struct Seen {
    panic_in_propose: AtomicBool,
    panic_in_retire: AtomicBool,
    stop: AtomicBool,
    rows: AtomicUsize,
    retired: Mutex<Vec<(RequestId, usize)>>,
    released: AtomicUsize,
}

/// Proposes the token behind the last one.
struct Next(Arc<Seen>);

impl DraftModel for Next {
    fn propose(&self, rows: DraftRows<'_>) -> ControlFlow<()> {
        self.0.rows.fetch_add(rows.len(), SeqCst);
        for mut row in rows {
            assert!(row.request() > 0 && row.user() >= 40);
            let last = *row.tokens().last().unwrap();
            row.propose(&vec![(last + 1) % 50; row.wanted() + 3]);
        }
        if self.0.panic_in_propose.swap(false, SeqCst) {
            panic!("in propose");
        }
        if self.0.stop.swap(false, SeqCst) {
            return Break(());
        }
        Continue(())
    }

    fn retire(&self, request: RequestId, user: usize) {
        self.0.retired.lock().unwrap().push((request, user));
        if self.0.panic_in_retire.swap(false, SeqCst) {
            panic!("in retire");
        }
    }
}

impl Drop for Next {
    fn drop(&mut self) {
        self.0.released.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_draft_of_functions_survives_its_panics() -> Result<()> {
    let (target, _) = random_pair()?;
    let seen = Arc::new(Seen::default());
    let draft = Draft::from_ops(Next(seen.clone()))?;
    let options = PoolOptions::new().fixed_k(true);
    let mut pool = Pool::new(&target, Some(&draft.clone()), &options)?;
    drop(draft);
    for user in [41, 42] {
        pool.submit(&Request::ids(&[1, 2, 3][..], 12).ignore_eos(true).user(user))?;
    }
    seen.panic_in_propose.store(true, SeqCst);
    assert_eq!(panic_of(|| pool.run()), "in propose");
    seen.stop.store(true, SeqCst);
    assert_eq!(pool.run().unwrap_err().status(), Status::CANCELLED);
    seen.panic_in_retire.store(true, SeqCst);
    assert_eq!(panic_of(|| pool.run()), "in retire");
    pool.run()?;
    assert_eq!(
        pool.results().filter(|result| result.as_ref().unwrap().tokens().len() == 12).count(),
        2
    );
    assert!(seen.rows.load(SeqCst) > 4 && pool.stat("tokens_drafted")? > 0);

    pool.submit(&Request::ids(&[1, 2, 3][..], 100).ignore_eos(true).user(43))?;
    let before = seen.rows.load(SeqCst);
    while seen.rows.load(SeqCst) == before {
        pool.step()?;
    }
    seen.panic_in_retire.store(true, SeqCst);
    assert_eq!(panic_of(|| drop(pool)), "in retire");
    let mut retired = seen.retired.lock().unwrap().clone();
    retired.sort_unstable();
    assert_eq!(retired, [(1, 41), (2, 42), (3, 43)]);
    assert_eq!(seen.released.load(SeqCst), 1);
    Ok(())
}

/// Allows even ids only.
struct Even {
    calls: Arc<AtomicUsize>,
    panics: bool,
}

impl Mask for Even {
    fn allow(&self, rows: MaskRows<'_>) -> ControlFlow<()> {
        if self.calls.fetch_add(1, SeqCst) == 1 && self.panics {
            panic!("in a mask");
        }
        for mut row in rows {
            assert_eq!(row.prompt(), [1, 2, 3]);
            let (answer, proposed) = row.answer_and_proposed();
            assert_eq!(row.tokens().len(), 3 + answer.len() + proposed.len());
            assert!(answer.iter().all(|id| id % 2 == 0));
            let even: Vec<Token> = (0..row.bits().len() as i32 * 32).step_by(2).collect();
            row.allow_only(&even);
            row.forbid(2);
        }
        Continue(())
    }
}

#[test]
fn a_mask_survives_its_panics_and_is_dropped_with_its_last_result() -> Result<()> {
    let (target, small) = random_pair()?;
    let calls = Arc::new(AtomicUsize::new(0));
    let mask = MaskHandle::new(Even { calls: calls.clone(), panics: true });
    let request = Request::ids(&[1, 2, 3][..], 10).ignore_eos(true).best_of(2, 3).logprobs(true);
    let request = request.sampling(Sampling::new().temperature(1.0)).mask(&mask);
    drop(mask);
    let mut pool = Pool::new(&target, Some(&Draft::from_model(&small)?), &PoolOptions::new())?;
    pool.submit(&request)?;
    drop(request);
    assert_eq!(panic_of(|| pool.run()), "in a mask");
    pool.run()?;
    for left in [2, 1] {
        assert_eq!(Arc::strong_count(&calls), 2, "{left} results are left");
        let result = pool.collect()?.unwrap();
        assert!(result.tokens().iter().all(|id| id % 2 == 0 && *id != 2));
        assert_eq!(result.tokens().len(), 10);
    }
    assert!(pool.collect()?.is_none());
    assert_eq!(Arc::strong_count(&calls), 1, "nothing holds the mask");
    Ok(())
}

#[test]
fn progress_is_told_and_stops_or_panics() -> Result<()> {
    let told = Mutex::new(Vec::new());
    let tell = |done, total| {
        told.lock().unwrap().push((done, total));
        Continue(())
    };
    Model::open_with(path("emoji"), &ModelOptions::new().progress(&tell))?;
    let (done, total) = *told.lock().unwrap().last().unwrap();
    assert!(done == total && total > 0);
    let stop = |_, _| Break(());
    let error = Model::open_with(path("emoji"), &ModelOptions::new().progress(&stop)).unwrap_err();
    assert_eq!(error.status(), Status::CANCELLED);
    let panics = |_, _| panic!("in progress");
    let options = ModelOptions::new().progress(&panics);
    assert_eq!(panic_of(|| Model::open_with(path("emoji"), &options)), "in progress");
    Ok(())
}

/// Counts the bytes that are out, and panics when it is told to.
#[derive(Default)]
struct Counts {
    bytes: AtomicUsize,
    panics: AtomicBool,
}

struct Counting(Arc<Counts>);

// SAFETY: memory is the system's, aligned to 64 as the most that is asked for.
unsafe impl Allocator for Counting {
    fn allocate(&self, size: usize, _align: usize) -> *mut u8 {
        if self.0.panics.swap(false, SeqCst) {
            panic!("in allocate");
        }
        self.0.bytes.fetch_add(size, SeqCst);
        // SAFETY: the size is not 0, which the library never asks for.
        unsafe { alloc(Layout::from_size_align(size, 64).unwrap()) }
    }

    unsafe fn free(&self, start: *mut u8, size: usize) {
        self.0.bytes.fetch_sub(size, SeqCst);
        // SAFETY: the caller's promise.
        unsafe { dealloc(start, Layout::from_size_align(size, 64).unwrap()) }
    }
}

#[test]
fn memory_functions_live_as_long_as_what_they_have_given() -> Result<()> {
    let (of_model, of_pool) = (Arc::new(Counts::default()), Arc::new(Counts::default()));
    let options = ModelOptions::new().allocator(Counting(of_model.clone()));
    let model = Model::open_with(path("emoji"), &options)?;
    drop(options);
    of_pool.panics.store(true, SeqCst);
    let options = PoolOptions::new().allocator(Counting(of_pool.clone()));
    assert_eq!(panic_of(|| Pool::new(&model, None, &options)), "in allocate");
    let mut pool = Pool::new(&model, None, &options)?;
    drop((options, model));
    pool.submit(&Request::text(PROMPTS[2].0, 20))?;
    pool.run()?;
    let result = pool.collect()?.unwrap();
    drop(pool);
    assert!(of_model.bytes.load(SeqCst) > 0 && of_pool.bytes.load(SeqCst) > 0);
    assert_eq!(result.text(), Some(PROMPTS[2].1));
    drop(result);
    assert_eq!((of_model.bytes.load(SeqCst), of_pool.bytes.load(SeqCst)), (0, 0));
    assert_eq!((Arc::strong_count(&of_model), Arc::strong_count(&of_pool)), (1, 1));
    Ok(())
}

#[test]
fn a_log_that_panics_is_told_by_the_call() -> Result<()> {
    // A checkpoint without an end-of-sequence id, which is worth a warning.
    let folder = folder("no_eos");
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(path("emoji").join(file), folder.join(file)).unwrap();
    }
    let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
    std::fs::write(folder.join("config.json"), config.replace("eos_token_id", "other")).unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let panics = Arc::new(AtomicBool::new(false));
    let (kept, armed) = (lines.clone(), panics.clone());
    let options = ModelOptions::new().log(move |level, line| {
        kept.lock().unwrap().push((level, line.to_string()));
        if armed.load(SeqCst) {
            panic!("in the log");
        }
    });
    Model::open_with(&folder, &options)?;
    let (level, line) = lines.lock().unwrap()[0].clone();
    assert!(level == LogLevel::WARN && line.contains("eos_token_id"), "{line}");
    panics.store(true, SeqCst);
    assert_eq!(panic_of(|| Model::open_with(&folder, &options)), "in the log");
    Ok(())
}

#[test]
fn an_interrupter_may_be_used_anywhere_and_outlives_its_pool() -> Result<()> {
    let mut pool = Pool::new(&model()?, None, &PoolOptions::new())?;
    pool.submit(&Request::text(PROMPTS[0].0, 20))?;
    let interrupter = pool.interrupter();
    let also = interrupter.clone();
    std::thread::spawn(move || also.interrupt()).join().unwrap();
    assert_eq!(pool.run().unwrap_err().status(), Status::INTERRUPTED);
    pool.run()?;
    assert_eq!(pool.collect()?.unwrap().text(), Some(PROMPTS[0].1));
    drop(pool);
    interrupter.interrupt();
    Ok(())
}
