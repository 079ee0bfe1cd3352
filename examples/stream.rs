//! What stream.c does, in Rust without any crate.
//!
//!     stream MODEL_DIR POLICY NAME PROMPT [NAME PROMPT ...]
//!
//! After `make` it is compiled by
//!
//!     rustc --edition 2021 -L lib -C link-arg=-Wl,-rpath,$PWD/lib examples/stream.rs -o build/stream
//!
//! The two modules are what a binding needs: `ffi` declares by hand what is used of specbatch.h, and
//! `specbatch` wraps it, so that handles are freed by Drop, and failures are an `Error` with the
//! library's line. Whatever is `unsafe` is in there. Rust 1.63 is enough.

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::Duration;

mod ffi {
    use std::mem::{size_of, zeroed};
    use std::os::raw::{c_char, c_void};

    pub const E_EMPTY: i32 = -7;
    pub const POOL_FIXED_K: u32 = 4;
    pub const FINISH_ERROR: i32 = 5;

    /// Declares a handle, whose content is the library's.
    macro_rules! opaque {
        ($($name:ident)*) => { $(
            #[repr(C)]
            pub struct $name {
                _content: [u8; 0],
            }
        )* };
    }

    /// Declares a struct of the header with its size in bytes. `new` is the header's _INIT: the
    /// size, and zero, the default, in all other fields. The header's structs have no padding. So
    /// if the fields' sizes add up to the size of the whole, each field is where it has to be.
    macro_rules! sized {
        ($name:ident, $size:literal, $($field:ident: $type:ty),* $(,)?) => {
            #[repr(C)]
            #[allow(dead_code)] // most fields are left at zero here
            pub struct $name {
                pub struct_size: usize,
                $(pub $field: $type,)*
            }

            const _: () = assert!(size_of::<$name>() == $size);
            const _: () = assert!(size_of::<usize>() $(+ size_of::<$type>())* == $size);

            impl $name {
                pub fn new() -> $name {
                    // SAFETY: the fields are numbers and raw pointers, which all may be zero.
                    $name { struct_size: $size, ..unsafe { zeroed() } }
                }
            }
        };
    }

    opaque!(Model Draft Pool Finished);

    sized!(PoolOptions, 96,
        policy: i32, batch: i32, window: i32, draft_len: i32, max_len: i32, prefill_chunk: i32,
        n_threads: i32, flags: u32, queue_max: u64, budget_bytes: u64, alloc: *const c_void,
        free: *const c_void, alloc_user: *mut c_void, log: *const c_void, log_user: *mut c_void,
    );
    sized!(Request, 80,
        ids: *const i32, n_ids: usize, text: *const c_char, text_flags: u32, flags: u32,
        max_new: i32, draft_len: i32, stop_ids: *const i32, n_stop_ids: usize, user: *mut c_void,
        text_length: usize,
    );
    sized!(Event, 64,
        id: u64, user: *mut c_void, ids: *const i32, n_ids: usize, text: *const c_char,
        text_length: usize, finish: i32, status: i32,
    );

    #[link(name = "specbatch")]
    extern "C" {
        pub fn specbatch_last_error() -> *const c_char;
        pub fn specbatch_status_name(status: i32) -> *const c_char;
        pub fn specbatch_finish_name(finish: i32) -> *const c_char;
        pub fn specbatch_policy_by_name(name: *const c_char) -> i32;
        pub fn specbatch_model_open(
            out: *mut *mut Model,
            path: *const c_char,
            options: *const c_void,
        ) -> i32;
        pub fn specbatch_model_close(model: *mut Model);
        pub fn specbatch_draft_from_ngrams(out: *mut *mut Draft, options: *const c_void) -> i32;
        pub fn specbatch_draft_release(draft: *mut Draft);
        pub fn specbatch_pool_create(
            out: *mut *mut Pool,
            target: *mut Model,
            draft: *mut Draft,
            options: *const PoolOptions,
        ) -> i32;
        pub fn specbatch_pool_free(pool: *mut Pool);
        pub fn specbatch_pool_submit(pool: *mut Pool, request: *const Request, id: *mut u64)
            -> i32;
        pub fn specbatch_pool_step(pool: *mut Pool, n_active: *mut usize) -> i32;
        pub fn specbatch_pool_next_event(pool: *mut Pool, event: *mut Event) -> i32;
        pub fn specbatch_pool_collect(pool: *mut Pool, result: *mut *mut Finished) -> i32;
        pub fn specbatch_result_user(result: *const Finished) -> *mut c_void;
        pub fn specbatch_result_status(result: *const Finished) -> i32;
        pub fn specbatch_result_finish(result: *const Finished) -> i32;
        pub fn specbatch_result_tokens(result: *const Finished, n: *mut usize) -> *const i32;
        pub fn specbatch_result_text(result: *const Finished, length: *mut usize) -> *const c_char;
        pub fn specbatch_result_rounds(result: *const Finished) -> u64;
        pub fn specbatch_result_drafted(result: *const Finished) -> u64;
        pub fn specbatch_result_accepted(result: *const Finished) -> u64;
        pub fn specbatch_result_time_queued_ns(result: *const Finished) -> u64;
        pub fn specbatch_result_time_first_token_ns(result: *const Finished) -> u64;
        pub fn specbatch_result_time_total_ns(result: *const Finished) -> u64;
        pub fn specbatch_result_free(result: *mut Finished);
    }
}

mod specbatch {
    use crate::ffi;
    use std::ffi::{CStr, CString};
    use std::os::raw::{c_char, c_void};
    use std::time::Duration;
    use std::{fmt, ptr, slice, str};

    #[derive(Debug)]
    pub struct Error(String);

    impl fmt::Display for Error {
        fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str(&self.0)
        }
    }

    impl std::error::Error for Error {}

    /// Copies a string that ends in NUL; the library's own may be gone with the next call.
    ///
    /// SAFETY: `text` is NULL or such a string.
    unsafe fn copied(text: *const c_char) -> String {
        if text.is_null() {
            return String::new();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }

    /// A status below 0 is a failure. Its line is copied before the next call on this thread.
    fn checked(status: i32) -> Result<i32, Error> {
        if status >= 0 {
            return Ok(status);
        }
        // SAFETY: the line is the library's, and ends in NUL.
        Err(Error(unsafe { copied(ffi::specbatch_last_error()) }))
    }

    /// Whether a function that takes things out of the pool has taken one.
    fn taken(status: i32) -> Result<bool, Error> {
        match status {
            ffi::E_EMPTY => Ok(false),
            _ => checked(status).map(|_| true),
        }
    }

    fn terminated(text: &[u8]) -> Result<CString, Error> {
        CString::new(text).map_err(|_| Error("a NUL in a name".to_string()))
    }

    /// The text of an event or a result, which is borrowed from it. NULL: there is no tokenizer.
    ///
    /// SAFETY: `text` is NULL, or has `length` bytes that live for 'a.
    unsafe fn borrowed<'a>(text: *const c_char, length: usize) -> Result<&'a str, Error> {
        if text.is_null() {
            return Ok("");
        }
        str::from_utf8(slice::from_raw_parts(text as *const u8, length))
            .map_err(|_| Error("half a character".to_string()))
    }

    pub struct Policy(i32);

    impl Policy {
        pub fn by_name(name: &[u8]) -> Result<Policy, Error> {
            let name = terminated(name)?;
            // SAFETY: the name ends in NUL.
            checked(unsafe { ffi::specbatch_policy_by_name(name.as_ptr()) }).map(Policy)
        }
    }

    pub struct Model(*mut ffi::Model);

    impl Model {
        pub fn open(path: &[u8]) -> Result<Model, Error> {
            let path = terminated(path)?;
            let mut model = ptr::null_mut();
            // SAFETY: path ends in NUL, and NULL are the default options.
            checked(unsafe { ffi::specbatch_model_open(&mut model, path.as_ptr(), ptr::null()) })?;
            Ok(Model(model))
        }
    }

    impl Drop for Model {
        fn drop(&mut self) {
            // SAFETY: the reference is this value's own.
            unsafe { ffi::specbatch_model_close(self.0) }
        }
    }

    pub struct Draft(*mut ffi::Draft);

    impl Draft {
        pub fn from_ngrams() -> Result<Draft, Error> {
            let mut draft = ptr::null_mut();
            // SAFETY: NULL are the default options.
            checked(unsafe { ffi::specbatch_draft_from_ngrams(&mut draft, ptr::null()) })?;
            Ok(Draft(draft))
        }
    }

    impl Drop for Draft {
        fn drop(&mut self) {
            // SAFETY: the reference is this value's own.
            unsafe { ffi::specbatch_draft_release(self.0) }
        }
    }

    /// A pool holds references of its own to its model and its draft, so it may outlive both values.
    /// Its methods that change it take `&mut self`, by which no two threads can be inside it.
    pub struct Pool(*mut ffi::Pool);

    impl Pool {
        pub fn new(target: &Model, draft: &Draft, policy: Policy) -> Result<Pool, Error> {
            let options = ffi::PoolOptions {
                policy: policy.0,
                flags: ffi::POOL_FIXED_K, // also where speculation does not pay
                ..ffi::PoolOptions::new()
            };
            let mut pool = ptr::null_mut();
            // SAFETY: the handles are alive, and the options have no callbacks.
            checked(unsafe { ffi::specbatch_pool_create(&mut pool, target.0, draft.0, &options) })?;
            Ok(Pool(pool))
        }

        /// `user` comes back with the request's events and its result.
        pub fn submit(&mut self, text: &[u8], max_new: i32, user: usize) -> Result<(), Error> {
            if text.is_empty() {
                // To the library the length 0 means "up to the NUL", and a slice has none.
                return Err(Error("the prompt is empty".to_string()));
            }
            let request = ffi::Request {
                text: text.as_ptr() as *const c_char,
                text_length: text.len(),
                max_new,
                user: user as *mut c_void,
                ..ffi::Request::new()
            };
            // SAFETY: the library copies the text, and only hands `user` back.
            checked(unsafe { ffi::specbatch_pool_submit(self.0, &request, ptr::null_mut()) })?;
            Ok(())
        }

        /// Runs a round. Returns how many requests are unfinished after it.
        pub fn step(&mut self) -> Result<usize, Error> {
            let mut active = 0;
            // SAFETY: the pool is alive, and borrowed by nobody else.
            checked(unsafe { ffi::specbatch_pool_step(self.0, &mut active) })?;
            Ok(active)
        }

        /// The next event. It borrows the pool, since its text lives until the next call on that.
        pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
            let mut event = ffi::Event::new();
            // SAFETY: as above; the text is borrowed for as long as the pool is.
            unsafe {
                if !taken(ffi::specbatch_pool_next_event(self.0, &mut event))? {
                    return Ok(None);
                }
                let text = borrowed(event.text, event.text_length)?;
                Ok(Some(Event { user: event.user as usize, text }))
            }
        }

        pub fn collect(&mut self) -> Result<Option<Finished>, Error> {
            let mut result = ptr::null_mut();
            // SAFETY: as above.
            let taken = taken(unsafe { ffi::specbatch_pool_collect(self.0, &mut result) })?;
            Ok(taken.then(|| Finished(result)))
        }
    }

    impl Drop for Pool {
        fn drop(&mut self) {
            // SAFETY: the pool is this value's own, and nobody is inside it.
            unsafe { ffi::specbatch_pool_free(self.0) }
        }
    }

    pub struct Event<'a> {
        pub user: usize,
        pub text: &'a str,
    }

    /// What the header calls a result, which in Rust is another thing.
    pub struct Finished(*mut ffi::Finished);

    // SAFETY of all of these: the result is alive, and what is borrowed from it lives as long.
    impl Finished {
        pub fn user(&self) -> usize {
            unsafe { ffi::specbatch_result_user(self.0) as usize }
        }

        pub fn text(&self) -> Result<&str, Error> {
            let mut length = 0;
            unsafe { borrowed(ffi::specbatch_result_text(self.0, &mut length), length) }
        }

        pub fn n_tokens(&self) -> usize {
            let mut n = 0;
            unsafe { ffi::specbatch_result_tokens(self.0, &mut n) };
            n
        }

        pub fn passes(&self) -> u64 {
            unsafe { ffi::specbatch_result_rounds(self.0) }
        }

        pub fn drafted(&self) -> u64 {
            unsafe { ffi::specbatch_result_drafted(self.0) }
        }

        pub fn accepted(&self) -> u64 {
            unsafe { ffi::specbatch_result_accepted(self.0) }
        }

        pub fn time_queued(&self) -> Duration {
            Duration::from_nanos(unsafe { ffi::specbatch_result_time_queued_ns(self.0) })
        }

        pub fn time_first_token(&self) -> Duration {
            Duration::from_nanos(unsafe { ffi::specbatch_result_time_first_token_ns(self.0) })
        }

        pub fn time_total(&self) -> Duration {
            Duration::from_nanos(unsafe { ffi::specbatch_result_time_total_ns(self.0) })
        }

        /// How the request has ended; if by an error, by which.
        pub fn finish(&self) -> String {
            unsafe {
                copied(match ffi::specbatch_result_finish(self.0) {
                    ffi::FINISH_ERROR => {
                        ffi::specbatch_status_name(ffi::specbatch_result_status(self.0))
                    }
                    finish => ffi::specbatch_finish_name(finish),
                })
            }
        }
    }

    impl Drop for Finished {
        fn drop(&mut self) {
            // SAFETY: the result is this value's own.
            unsafe { ffi::specbatch_result_free(self.0) }
        }
    }
}

use specbatch::{Draft, Finished, Model, Policy, Pool};

struct Request {
    name: String,
    prompt: Vec<u8>,
    streamed: String,
}

/// Prints a line, whatever is in the text.
fn show(out: &mut impl Write, name: &str, mark: &str, text: &str) -> io::Result<()> {
    writeln!(out, "{}{} {}", name, mark, text.replace('\\', "\\\\").replace('\n', "\\n"))
}

fn show_result(
    out: &mut impl Write,
    request: &Request,
    result: &Finished,
) -> Result<(), Box<dyn Error>> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let end = format!(
        "{}, {} tokens in {} passes, {} of {} proposals accepted; \
         waited {:.3} ms, first token after {:.3} ms, all after {:.3} ms",
        result.finish(),
        result.n_tokens(),
        result.passes(),
        result.accepted(),
        result.drafted(),
        ms(result.time_queued()),
        ms(result.time_first_token()),
        ms(result.time_total()),
    );

    if result.text()? != request.streamed {
        return Err(format!("{}: the events do not add up to the text", request.name).into());
    }
    show(out, &request.name, "=", result.text()?)?;
    show(out, &request.name, ":", &end)?;
    Ok(())
}

/// Submits all requests at once, and shows what comes. `user` of a request is its index.
fn stream(pool: &mut Pool, requests: &mut [Request]) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock(); // which is flushed after every line
    let mut active = 1;

    for (i, request) in requests.iter().enumerate() {
        pool.submit(&request.prompt, 64, i)?;
    }
    while active > 0 {
        active = pool.step()?;
        while let Some(event) = pool.next_event()? {
            let request = &mut requests[event.user];
            request.streamed.push_str(event.text);
            if !event.text.is_empty() {
                show(&mut out, &request.name, ">", event.text)?;
            }
        }
        while let Some(result) = pool.collect()? {
            show_result(&mut out, &requests[result.user()], &result)?;
        }
    }
    Ok(())
}

fn run(arguments: &[Vec<u8>]) -> Result<(), Box<dyn Error>> {
    let policy = Policy::by_name(&arguments[1])?;
    let target = Model::open(&arguments[0])?;
    let mut pool = Pool::new(&target, &Draft::from_ngrams()?, policy)?;
    let mut requests: Vec<_> = arguments[2..]
        .chunks(2)
        .map(|pair| Request {
            name: String::from_utf8_lossy(&pair[0]).into_owned(),
            prompt: pair[1].clone(),
            streamed: String::new(),
        })
        .collect();

    stream(&mut pool, &mut requests)
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).map(OsString::into_vec).collect();

    if arguments.len() < 4 || arguments.len() % 2 != 0 {
        eprintln!("usage: stream MODEL_DIR POLICY NAME PROMPT [NAME PROMPT ...]");
        return ExitCode::from(2);
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stream: {}", error);
            ExitCode::FAILURE
        }
    }
}
