"""What stream.c does, in Python: through ctypes, and nothing else that is not Python's own.

    stream.py MODEL_DIR POLICY NAME PROMPT [NAME PROMPT ...]

The loader must find libspecbatch.so.1: LD_LIBRARY_PATH=lib does that after `make`. The first half
is what a binding needs: structs as in the header, tables of functions, whose failures become
exceptions, and handles that are freed where their `with` block ends.
"""

import contextlib
import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

OK, E_EMPTY = 0, -7
POOL_FIXED_K = 4
FINISH_ERROR = 5


class Error(Exception):
    """A failure. That of a call has the library's line about it."""


class Struct(ctypes.Structure):
    """A struct that begins with its own size. ctypes sets the rest to zero, the default."""

    def __init__(self, **fields):
        super().__init__(ctypes.sizeof(self), **fields)


class PoolOptions(Struct):
    _fields_ = [("struct_size", c_size_t), ("policy", c_int32), ("batch", c_int32),
                ("window", c_int32), ("draft_len", c_int32), ("max_len", c_int32),
                ("prefill_chunk", c_int32), ("n_threads", c_int32), ("flags", c_uint32),
                ("queue_max", c_uint64), ("budget_bytes", c_uint64), ("alloc", c_void_p),
                ("free", c_void_p), ("alloc_user", c_void_p), ("log", c_void_p),
                ("log_user", c_void_p)]


class Request(Struct):
    _fields_ = [("struct_size", c_size_t), ("ids", POINTER(c_int32)), ("n_ids", c_size_t),
                ("text", c_char_p), ("text_flags", c_uint32), ("flags", c_uint32),
                ("max_new", c_int32), ("draft_len", c_int32), ("stop_ids", POINTER(c_int32)),
                ("n_stop_ids", c_size_t), ("user", c_void_p), ("text_length", c_size_t)]


class Event(Struct):
    # `text` is no c_char_p, because that ends at a NUL, and text may hold some.
    _fields_ = [("struct_size", c_size_t), ("id", c_uint64), ("user", c_void_p),
                ("ids", POINTER(c_int32)), ("n_ids", c_size_t), ("text", c_void_p),
                ("text_length", c_size_t), ("finish", c_int32), ("status", c_int32)]


# The header's introduction has these sizes.
assert [ctypes.sizeof(struct) for struct in (PoolOptions, Request, Event)] == [96, 80, 64]

HANDLE, OUT = c_void_p, POINTER(c_void_p)

# Functions that return a status, or a number instead of one, with their arguments.
CALLS = {
    "policy_by_name": (c_char_p,),
    "model_open": (OUT, c_char_p, c_void_p),
    "draft_from_ngrams": (OUT, c_void_p),
    "pool_create": (OUT, HANDLE, HANDLE, POINTER(PoolOptions)),
    "pool_submit": (HANDLE, POINTER(Request), POINTER(c_uint64)),
    "pool_step": (HANDLE, POINTER(c_size_t)),
    "pool_next_event": (HANDLE, POINTER(Event)),
    "pool_collect": (HANDLE, OUT),
}

# The others: what they return, and their arguments.
VALUES = {
    "last_error": (c_char_p,),
    "status_name": (c_char_p, c_int32),
    "finish_name": (c_char_p, c_int32),
    "model_close": (None, HANDLE),
    "draft_release": (None, HANDLE),
    "pool_free": (None, HANDLE),
    "result_user": (c_void_p, HANDLE),
    "result_status": (c_int32, HANDLE),
    "result_finish": (c_int32, HANDLE),
    "result_text": (c_void_p, HANDLE, POINTER(c_size_t)),
    "result_tokens": (c_void_p, HANDLE, POINTER(c_size_t)),
    "result_rounds": (c_uint64, HANDLE),
    "result_drafted": (c_uint64, HANDLE),
    "result_accepted": (c_uint64, HANDLE),
    "result_time_queued_ns": (c_uint64, HANDLE),
    "result_time_first_token_ns": (c_uint64, HANDLE),
    "result_time_total_ns": (c_uint64, HANDLE),
    "result_free": (None, HANDLE),
}


def checked(status, _function, _arguments):
    """Lets E_EMPTY pass, which is no failure: there is nothing to take now."""
    if status < 0 and status != E_EMPTY:
        raise Error(LIBRARY.last_error().decode())
    return status


def load(name):
    library = ctypes.CDLL(name)
    for call, arguments in CALLS.items():
        function = library["specbatch_" + call]
        setattr(library, call, function)
        function.argtypes, function.restype, function.errcheck = arguments, c_int32, checked
    for value, (returned, *arguments) in VALUES.items():
        function = library["specbatch_" + value]
        setattr(library, value, function)
        function.argtypes, function.restype = arguments, returned
    return library


LIBRARY = load("libspecbatch.so.1")


@contextlib.contextmanager
def opened(create, free, *arguments):
    """A handle for a `with` block: what `create` gives, or None if it has nothing to give."""
    handle = c_void_p()
    status = create(byref(handle), *arguments)
    try:
        yield handle if status == OK else None
    finally:
        free(handle)


def model(path):
    return opened(LIBRARY.model_open, LIBRARY.model_close, os.fsencode(path), None)


def ngram_draft():
    return opened(LIBRARY.draft_from_ngrams, LIBRARY.draft_release, None)


def pool(target, draft, **options):
    given = PoolOptions(**options)
    return opened(LIBRARY.pool_create, LIBRARY.pool_free, target, draft, given)


def text_of(address, length):
    """The library's UTF-8 as a str. Half a character would raise an exception."""
    return ctypes.string_at(address, length).decode() if address else ""


def events(running):
    """Takes all events there are. Each is to be used before the next call on the pool."""
    event = Event()
    while LIBRARY.pool_next_event(running, byref(event)) == OK:
        yield event


def results(running):
    """Takes all results there are. Each is freed when the next one is asked for."""
    def collect(out):
        return LIBRARY.pool_collect(running, out)

    while True:
        with opened(collect, LIBRARY.result_free) as result:
            if result is None:
                return
            yield result


def show(name, mark, text):
    """Prints a line, whatever is in the text."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    print(f"{name}{mark} {text}", flush=True)


def show_result(result, name, streamed):
    length, n_tokens = c_size_t(), c_size_t()
    text = text_of(LIBRARY.result_text(result, byref(length)), length.value)
    if text != streamed:
        raise Error(f"{name}: the events do not add up to the text")
    LIBRARY.result_tokens(result, byref(n_tokens))
    finish = LIBRARY.result_finish(result)
    end = (LIBRARY.status_name(LIBRARY.result_status(result)) if finish == FINISH_ERROR
           else LIBRARY.finish_name(finish)).decode()
    waited, first, total = (time(result) / 1e6 for time in (
        LIBRARY.result_time_queued_ns, LIBRARY.result_time_first_token_ns,
        LIBRARY.result_time_total_ns))
    show(name, "=", text)
    show(name, ":", f"{end}, {n_tokens.value} tokens in {LIBRARY.result_rounds(result)} passes, "
         f"{LIBRARY.result_accepted(result)} of {LIBRARY.result_drafted(result)} proposals "
         f"accepted; waited {waited:.3f} ms, first token after {first:.3f} ms, "
         f"all after {total:.3f} ms")


def stream(running, names, prompts):
    """Submits all prompts at once, and shows what comes. `user` of a request is its index."""
    streamed = [""] * len(names)
    active = c_size_t(1)
    for i, prompt in enumerate(prompts):
        text = os.fsencode(prompt)
        request = Request(text=text, text_length=len(text), max_new=64, user=i)
        LIBRARY.pool_submit(running, byref(request), None)
    while active:
        LIBRARY.pool_step(running, byref(active))
        for event in events(running):
            i = event.user or 0  # ctypes takes the 0 for a NULL, and gives None
            text = text_of(event.text, event.text_length)
            streamed[i] += text
            if text:
                show(names[i], ">", text)
        for result in results(running):
            i = LIBRARY.result_user(result) or 0
            show_result(result, names[i], streamed[i])


def main(path, policy, *requests):
    policy = LIBRARY.policy_by_name(os.fsencode(policy))
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    with model(path) as target, ngram_draft() as draft, \
            pool(target, draft, policy=policy, flags=POOL_FIXED_K) as running:
        stream(running, requests[::2], requests[1::2])


if __name__ == "__main__":
    if len(sys.argv) < 5 or len(sys.argv) % 2 == 0:
        print("usage: stream.py MODEL_DIR POLICY NAME PROMPT [NAME PROMPT ...]", file=sys.stderr)
        sys.exit(2)
    try:
        main(*sys.argv[1:])
    except (Error, OSError) as error:
        sys.exit(f"stream.py: {error}")
