"""Measures this library through its C API (ctypes), in the class of products that the job names,
and with the weights that follow it after a `+`: q8 and q4 are made of the checkpoint's as it is
loaded, q8_0 and q4_0 are read from the file that llama.cpp runs.

Speculation is ragged with K fixed, and its draft is a callback, which takes no time worth
mentioning. A verification is measured by a callback that is never right: every row then gets one
token a round, so all rounds are passes of 8 x (K + 1). Pass times are the pool's own (verify_ns),
which contain the choice of tokens.
"""
import ctypes as c
import os
import sys
import time

import job
import speed_job

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
sys.path.insert(0, os.path.join(ROOT, "pkgconfig"))

import header

INT32S = c.POINTER(c.c_int32)


class ModelOptions(c.Structure):
    """specbatch_model_options. The pointers between the numbers stay NULL."""
    _fields_ = [("struct_size", c.c_size_t), ("device", c.c_int32), ("compute", c.c_int32),
                ("simd", c.c_int32), ("device_index", c.c_int32), ("pointers", c.c_void_p * 8),
                ("kv", c.c_int32), ("weights", c.c_int32)]


class PoolOptions(c.Structure):
    """The beginning of specbatch_pool_options."""
    _fields_ = [("struct_size", c.c_size_t), ("policy", c.c_int32), ("batch", c.c_int32),
                ("window", c.c_int32), ("draft_len", c.c_int32), ("max_len", c.c_int32),
                ("prefill_chunk", c.c_int32), ("n_threads", c.c_int32), ("flags", c.c_uint32)]


class Request(c.Structure):
    """The beginning of specbatch_request."""
    _fields_ = [("struct_size", c.c_size_t), ("ids", INT32S), ("n_ids", c.c_size_t),
                ("text", c.c_char_p), ("text_flags", c.c_uint32), ("flags", c.c_uint32),
                ("max_new", c.c_int32), ("draft_len", c.c_int32)]


class Row(c.Structure):
    """specbatch_draft_row."""
    _fields_ = [("struct_size", c.c_size_t), ("request_id", c.c_uint64), ("user", c.c_void_p),
                ("tokens", INT32S), ("n_tokens", c.c_size_t), ("out", INT32S), ("k", c.c_int32),
                ("n_out", c.c_int32)]


PROPOSE = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.POINTER(c.POINTER(Row)), c.c_size_t)


class DraftOps(c.Structure):
    """specbatch_draft_ops."""
    _fields_ = [("struct_size", c.c_size_t), ("propose", PROPOSE), ("retire", c.c_void_p),
                ("release", c.c_void_p), ("user", c.c_void_p)]


def constants():
    """The header's constants, without SPECBATCH_ before their names."""
    found = header.read(os.path.join(ROOT, "include/specbatch.h"))["constants"]
    return {item["name"].replace("SPECBATCH_", "", 1): item["value"] for item in found}


def load(path):
    lib = c.CDLL(os.path.abspath(path))
    lib.specbatch_last_error.restype = lib.specbatch_model_fingerprint.restype = c.c_char_p
    lib.specbatch_result_tokens.restype = INT32S
    lib.specbatch_result_id.restype = c.c_uint64
    for name in ("result_id", "result_free", "pool_free", "draft_release", "model_fingerprint"):
        getattr(lib, "specbatch_" + name).argtypes = [c.c_void_p]
    return lib


class Ours:
    def __init__(self, work):
        self.work, self.lib, self.constant = work, load(work.library), constants()
        name, _, kind = work.compute.partition("+")
        compute = self.constant.get("COMPUTE_" + name.upper())
        weights = self.constant.get("WEIGHTS_" + (kind or "auto").upper())
        if compute is None:
            job.skip("no class of products is called " + name)
        path = work.model if weights is not None else work.gguf(kind)
        self.model = c.c_void_p()
        options = ModelOptions(c.sizeof(ModelOptions), compute=compute, weights=weights or 0)
        self.call("model_open", c.byref(self.model), path.encode(), c.byref(options))
        self.version = self.lib.specbatch_model_fingerprint(self.model).decode()

    def call(self, name, *arguments):
        if getattr(self.lib, "specbatch_" + name)(*arguments):
            sys.exit("%s: %s" % (name, self.lib.specbatch_last_error().decode()))

    def counter(self, pool, name):
        value = c.c_uint64()
        self.call("pool_stat", pool, name.encode(), c.byref(value))
        return value.value

    def draft(self, known, rows, accept):
        """A draft whose row i continues rows[i]. What it returns is to be kept while it is used."""
        work = self.work

        def propose(_, at, count):
            for row in (at[b].contents for b in range(count)):
                done = row.n_tokens - work.prompt_len
                ids = work.propose(known, rows[row.request_id - 1], done, row.k, accept)
                for i, token in enumerate(ids):
                    row.out[i] = token
                row.n_out = row.k
            return 0

        ops = DraftOps(c.sizeof(DraftOps), PROPOSE(propose))
        draft = c.c_void_p()
        self.call("draft_from_ops", c.byref(draft), c.byref(ops))
        return draft, ops

    def submit(self, pool, prompt):
        ids = (c.c_int32 * len(prompt))(*prompt)
        request = Request(c.sizeof(Request), ids=ids, n_ids=len(prompt), max_new=self.work.new,
                          flags=self.constant["REQUEST_IGNORE_EOS"])
        self.call("pool_submit", pool, c.byref(request), None)

    def collect(self, pool, count):
        result, n, outputs = c.c_void_p(), c.c_size_t(), [None] * count
        while self.lib.specbatch_pool_collect(pool, c.byref(result)) == 0:
            ids = self.lib.specbatch_result_tokens(result, c.byref(n))
            outputs[self.lib.specbatch_result_id(result) - 1] = ids[:n.value]
            self.lib.specbatch_result_free(result)
        return outputs

    def run(self, rows, draft=None):
        """Generates for these prompts in one batch. Returns the seconds of the prompts, what the
        counters and the clock (`seconds`) gained while all rows decoded, and the outputs."""
        names = ("tokens_committed", "tokens_drafted", "decode_rows", "verify_ns", "target_passes")
        policy = self.constant["POLICY_RAGGED" if draft else "POLICY_PLAIN"]
        options = PoolOptions(
            c.sizeof(PoolOptions), policy, len(rows), draft_len=self.work.draft_len,
            max_len=self.work.prompt_len + self.work.new, n_threads=self.work.threads,
            prefill_chunk=len(rows) * self.work.prompt_len,
            flags=self.constant["POOL_FIXED_K"])
        pool, active = c.c_void_p(), c.c_size_t(1)
        self.call("pool_create", c.byref(pool), self.model, draft, c.byref(options))

        def moment():
            now = {name: self.counter(pool, name) for name in names}
            return dict(now, seconds=time.perf_counter())

        def step():
            self.call("pool_step", pool, c.byref(active))

        for row in rows:
            self.submit(pool, self.work.prompts[row])
        submitted = moment()
        while self.counter(pool, "tokens_committed") < len(rows):
            step()
        begun = moment()
        while self.counter(pool, "requests_finished") == 0:
            step()
        done = moment()
        while active.value:
            step()
        outputs = self.collect(pool, len(rows))
        self.lib.specbatch_pool_free(pool)
        gained = {name: done[name] - begun[name] for name in begun}
        return begun["seconds"] - submitted["seconds"], gained, outputs

    def speculate(self, rows, known, accept):
        draft, ops = self.draft(known, rows, accept)
        _, gained, outputs = self.run(rows, draft)
        self.lib.specbatch_draft_release(draft)
        del ops
        # Rows have fewer proposals in their last rounds only.
        if gained["tokens_drafted"] < gained["decode_rows"] * self.work.draft_len / 2:
            sys.exit("rounds had %d proposals for %d rows: K was not fixed" %
                     (gained["tokens_drafted"], gained["decode_rows"]))
        return gained, outputs


def speed(gained):
    return gained["tokens_committed"] / gained["seconds"]


def pass_time(gained):
    return gained["verify_ns"] / gained["target_passes"]


def program(work):
    ours = Ours(work)
    everyone = list(range(speed_job.BATCH))

    ours.run([0])
    runs = [ours.run([row]) for row in range(work.plain_prompts())]
    ours_plain = [outputs[0] for _, _, outputs in runs]
    prompt, gained, _ = runs[-1]
    work.give("prompt", ours.version, work.prompt_len / prompt)
    work.give("plain 1", ours.version, speed(gained), ours_plain)
    _, plain, known = ours.run(everyone)
    work.give("plain 8", ours.version, speed(plain), known)
    gained, outputs = ours.speculate(everyone, known, 0.0)
    work.give("verify 8", ours.version, pass_time(gained) / pass_time(plain), outputs)
    for name, rows in (("spec 1", [0]), ("spec 8", everyone)):
        gained, outputs = ours.speculate(rows, known, work.accept)
        work.give(name, ours.version, speed(gained), outputs, "%.2f tokens a row and round" %
                  (gained["tokens_committed"] / gained["decode_rows"]))


speed_job.main(program)
