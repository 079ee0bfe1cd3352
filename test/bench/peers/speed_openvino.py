"""Measures OpenVINO GenAI, with the inference precision that the job names (f32 or bf16).

The package is openvino-genai, whose own reader turns a GGUF file into OpenVINO's model. Rejected:
optimum-intel, which needs torch and so brings gigabytes. The reader takes f16 and f32 and no bf16,
so the weights go through f16, which has as many bytes and keeps every bf16 value of 2^-17 or more
(to_gguf.py). Caches have the precision of the arithmetic; by default they would have 8 bits.

Plain decoding and speculation are those of its ContinuousBatchingPipeline, step by step. Its
speculation needs a draft model, which is never right on random weights: the figure is what a bad
draft costs, and the outputs say whether speculation changes the text. The pipeline has no single
passes, so the verification is measured on the same model in OpenVINO itself.
"""
import os
import statistics

import job
import speed_job

CHUNK = 32  # positions of a prompt whose logits are computed at a time


def model_folder(work, model, form):
    """The folder of the model in OpenVINO's form, which is made once."""
    import gguf as _  # which to_gguf.py needs
    import openvino_genai as genai

    folder = os.path.join(work.scratch, form + "-openvino")
    done = os.path.join(folder, "done")
    if not os.path.exists(done):
        path = os.path.join(folder, "model.gguf")
        work.write_gguf(model, path, "f16")
        genai.LLMPipeline(path, "CPU", enable_save_ov_model=True)
        os.rename(path, done)
        os.truncate(done, 0)
    return folder


class Pipeline:
    def __init__(self, work, folder, draft=None):
        import openvino_genai as genai

        self.work = work
        rules = genai.SchedulerConfig()
        rules.enable_prefix_caching = False
        rules.max_num_seqs = speed_job.BATCH
        rules.max_num_batched_tokens = speed_job.BATCH * work.prompt_len
        rules.cache_size = 2  # GB
        options = properties(work)
        if draft:
            options["draft_model"] = genai.draft_model(draft, "CPU", **properties(work))
        self.pipe = genai.ContinuousBatchingPipeline(folder, rules, "CPU", options)
        self.config = genai.GenerationConfig()
        self.config.do_sample = False
        self.config.ignore_eos = True
        self.config.max_new_tokens = work.new
        if draft:
            self.config.num_assistant_tokens = work.draft_len

    def measure(self, rows):
        """Generates for these prompts in one batch. Returns the seconds of the prompts, the speed
        while all rows decode, and the outputs."""
        import numpy
        import openvino

        handles = [
            self.pipe.add_request(row, openvino.Tensor(numpy.array([self.work.prompts[row]])),
                                  self.config) for row in rows]
        outputs = [[] for _ in rows]

        def step():
            self.pipe.step()
            for handle, out in zip(handles, outputs):
                while handle.can_read():
                    for part in handle.read().values():
                        out += part.generated_ids

        def until(enough):
            while not enough():
                step()

        prompts, _ = speed_job.seconds_of(lambda: until(lambda: min(map(len, outputs)) > 0))
        before = sum(map(len, outputs))
        seconds, _ = speed_job.seconds_of(
            lambda: until(lambda: max(map(len, outputs)) >= self.work.new))
        tokens = sum(map(len, outputs)) - before
        until(lambda: not self.pipe.has_non_finished_requests())
        return prompts, tokens / seconds, outputs


def properties(work):
    return {"INFERENCE_PRECISION_HINT": work.compute, "KV_CACHE_PRECISION": work.compute,
            "INFERENCE_NUM_THREADS": work.threads}


class Passes:
    """Passes of 8 rows of equal length."""

    def __init__(self, work, folder):
        import openvino

        self.length = 0
        self.prompts = work.prompts
        core = openvino.Core()
        model = core.read_model(os.path.join(folder, "openvino_model.xml"))
        self.request = core.compile_model(model, "CPU", properties(work)).create_infer_request()

    def run(self, ids):
        import numpy

        batch, count = ids.shape
        self.length += count
        places = numpy.arange(self.length - count, self.length, dtype=numpy.int64)
        self.request.infer({
            "input_ids": ids, "attention_mask": numpy.ones((batch, self.length), numpy.int64),
            "position_ids": numpy.tile(places, (batch, 1)),
            "beam_idx": numpy.arange(batch, dtype=numpy.int32)})
        return self.request.get_tensor("logits").data.argmax(-1)

    def verification(self, width, pairs):
        """The time of a pass of 8 x width over that of one of 8 x 1, when each row has its prompt:
        the median of so many pairs. What a pass adds stays in the cache, since that changes
        little."""
        import numpy

        prompts = numpy.array(self.prompts, numpy.int64)
        for at in range(0, prompts.shape[1], CHUNK):
            self.run(prompts[:, at:at + CHUNK])

        def seconds(count):
            return speed_job.seconds_of(lambda: self.run(prompts[:, :count]))[0]

        ratios = [seconds(width) / seconds(1) for _ in range(1 + pairs)]
        return statistics.median(ratios[1:])


def check_memory(work):
    """In f32 it took five times the checkpoint. A system without room would be killed, or drive the
    others out of memory."""
    need = os.path.getsize(os.path.join(work.model, "model.safetensors"))
    need *= 5 if work.compute == "f32" else 1
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    if need > 1024 * free:
        job.skip("it takes about %.0f GB of memory, and %.0f GB are available" %
                 (need / 1e9, free / 1e6))


def program(work):
    import openvino_genai as genai

    if work.compute not in ("f32", "bf16"):
        job.skip("it has no inference precision called " + work.compute)
    check_memory(work)
    folder = model_folder(work, work.model, work.form)
    version = "OpenVINO GenAI %s" % genai.__version__
    everyone = list(range(speed_job.BATCH))

    pipe = Pipeline(work, folder)
    pipe.measure([0])
    runs = [pipe.measure([row]) for row in range(work.plain_prompts())]
    prompt, speed, _ = runs[-1]
    work.give("prompt", version, work.prompt_len / prompt)
    work.give("plain 1", version, speed, [outputs[0] for *_, outputs in runs])
    _, speed, outputs = pipe.measure(everyone)
    work.give("plain 8", version, speed, outputs)
    del pipe

    ratio = Passes(work, folder).verification(work.draft_len + 1, 8)
    work.give("verify 8", version, ratio)

    pipe = Pipeline(work, folder, model_folder(work, work.draft, work.draft_form))
    pipe.measure([0])
    for name, rows in (("spec 1", [0]), ("spec 8", everyone)):
        _, speed, outputs = pipe.measure(rows)
        work.give(name, version, speed, outputs, "a draft that is never right")


speed_job.main(program)
