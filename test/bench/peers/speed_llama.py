"""Measures llama.cpp through libllama, which llama-cpp-python builds for this machine.

Its weights have the type in which the checkpoint stores them (to_gguf.py), unless the job's class
names another; caches and attention are what llama.cpp takes by default. Plain decoding is a loop of
llama_decode. Speculation is that loop with proposals from outside, since llama.cpp's own is not in
libllama: the highest logit at each position says which proposals are right, and the others are
removed from the cache.
"""
import ctypes
import os
import sys

import speed_job


class Context:
    """A context with `batch` sequences, and the number of tokens that each has in the cache."""

    def __init__(self, llama, model, work, batch):
        self.llama, self.vocab = llama, work.vocab
        room = work.prompt_len + work.new + 2 * work.draft_len + 2
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_seq_max = batch * ((room + 255) // 256 * 256), batch
        params.n_batch = batch * work.prompt_len
        params.n_threads = params.n_threads_batch = work.threads
        self.at = llama.llama_init_from_model(model, params)
        if not self.at:
            raise RuntimeError("llama_init_from_model failed")
        self.batch = llama.llama_batch_init(params.n_batch, 0, 1)
        self.lengths = [0] * batch

    def free(self):
        self.llama.llama_batch_free(self.batch)
        self.llama.llama_free(self.at)

    def decode(self, rows, wanted):
        """Appends rows[i] to sequence i in one pass. Returns the choices of each row's last
        `wanted` positions."""
        batch, places = self.batch, []
        batch.n_tokens = 0
        for row, ids in enumerate(rows):
            places.append([])
            for i, token in enumerate(ids):
                n = batch.n_tokens
                batch.token[n], batch.pos[n] = token, self.lengths[row] + i
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, row
                batch.logits[n] = i >= len(ids) - wanted
                if batch.logits[n]:
                    places[-1].append(n)
                batch.n_tokens += 1
            self.lengths[row] += len(ids)
        if self.llama.llama_decode(self.at, batch):
            raise RuntimeError("llama_decode failed")
        return [[self.choice(n) for n in row] for row in places]

    def choice(self, place):
        import numpy

        logits = self.llama.llama_get_logits_ith(self.at, place)
        pointer = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))
        return int(numpy.ctypeslib.as_array(pointer, (self.vocab,)).argmax())

    def drop(self, row, count):
        """Removes the last `count` tokens of a sequence."""
        if count:
            self.lengths[row] -= count
            memory = self.llama.llama_get_memory(self.at)
            self.llama.llama_memory_seq_rm(memory, row, self.lengths[row], -1)


def generate(context, work, rows, known=None, accept=0.0):
    """Generates for these prompts in one batch, without proposals if nothing is known. Returns the
    seconds of the prompts, the seconds, tokens and passes afterwards, and the outputs."""
    count = work.draft_len if known else 0
    prompts, first = speed_job.seconds_of(
        lambda: context.decode([work.prompts[row] for row in rows], 1))
    outputs, passes = [list(ids) for ids in first], 0

    def decode():
        nonlocal passes
        while max(map(len, outputs)) < work.new:
            ids = [work.propose(known, row, len(out), count, accept) if count else []
                   for row, out in zip(rows, outputs)]
            found = context.decode([[out[-1]] + row for out, row in zip(outputs, ids)], count + 1)
            for row, (out, proposed, choices) in enumerate(zip(outputs, ids, found)):
                right = 0
                while right < count and proposed[right] == choices[right]:
                    right += 1
                out += choices[:right + 1]
                del out[work.new:]
                context.drop(row, count - right)
            passes += 1

    seconds, _ = speed_job.seconds_of(decode)
    tokens = sum(map(len, outputs)) - len(rows)
    return prompts, seconds, tokens, passes, outputs


def program(work):
    import gguf as _  # which to_gguf.py needs
    import llama_cpp as llama

    quiet = llama.llama_log_callback(lambda *_: None)  # a name, since libllama keeps no reference
    llama.llama_log_set(quiet, None)
    llama.llama_backend_init()
    has = llama.llama_print_system_info().decode()
    sets = ("AVX2", "AVX512", "AVX512_VNNI", "AVX512_BF16", "AMX_INT8", "AMX_BF16")
    version = "llama.cpp of llama-cpp-python %s (%s)" % (
        llama.__version__, " ".join(word for word in sets if word + " = 1" in has))
    if os.path.exists(os.path.join(sys.prefix, "without-amx")):
        version += ", built without AMX, with which it crashes here"
    path = work.gguf(work.compute)
    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    if not model:
        raise RuntimeError("cannot load " + path)
    everyone = list(range(speed_job.BATCH))

    def run(rows, *options):
        context = Context(llama, model, work, len(rows))
        try:
            return generate(context, work, rows, *options)
        finally:
            context.free()

    run([0])
    runs = [run([row]) for row in range(work.plain_prompts())]
    prompt, seconds, tokens, _, _ = runs[-1]
    work.give("prompt", version, work.prompt_len / prompt)
    work.give("plain 1", version, tokens / seconds, [outputs[0] for *_, outputs in runs])
    _, plain, tokens, plain_passes, known = run(everyone)
    work.give("plain 8", version, tokens / plain, known)
    _, seconds, _, passes, outputs = run(everyone, known, 0.0)
    work.give("verify 8", version, seconds / passes / (plain / plain_passes), outputs)
    for name, rows in (("spec 1", [0]), ("spec 8", everyone)):
        _, seconds, tokens, passes, outputs = run(rows, known, work.accept)
        work.give(name, version, tokens / seconds, outputs,
                  "%.2f tokens a row and round" % (tokens / passes / len(rows)))


speed_job.main(program)
