"""Runs llama.cpp's server, from the package xllamacpp, at every batch size: plainly, with the draft
model and with n-grams.

The server has B slots with continuous batching, and B requests are under way at any time. They go
over HTTP on the loopback address, since that is how the server is used and the package's own call
does not return ids. Weights (to_gguf.py) are as the checkpoint stores them, and f32; caches are
f32. Flash attention is off: on a CPU its log-probabilities differ by 2e-3 from those computed in
f64, and those without it do not. Prompts are not cached. The package is built for AVX2 and without
AVX-512; the version that is reported names the instruction sets. speed_llama.py measures a build
for this machine.
"""
import json
import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import job


def program(work):
    import xllamacpp as llama

    kinds = llama.common_speculative_type
    methods = {"plain": kinds.COMMON_SPECULATIVE_TYPE_NONE,
               "draft model": kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE,
               "n-grams": kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE}
    has = [word.split(" = ")[0] for word in llama.get_system_info().split("|") if " = 1" in word]
    version = "llama.cpp of xllamacpp %s (%s)" % (llama.__version__, " ".join(
        word.split()[-1] for word in has if "AVX" in word or "FMA" in word))

    def use_threads(params):
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = work.threads
        params.cache_type_k = params.cache_type_v = llama.ggml_type.GGML_TYPE_F32

    def serve(kind, method, batch):
        params = llama.CommonParams()
        params.model.path = os.path.join(work.gguf, "target-%s.gguf" % kind)
        params.n_parallel = batch
        params.n_ctx = batch * (work.longest + work.max_new + work.draft_len + 64)
        params.cache_prompt = False
        params.verbosity = 0
        params.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        use_threads(params)
        params.speculative.types = [methods[method]]
        if method == "draft model":
            draft = params.speculative.draft
            draft.mparams.path = os.path.join(work.gguf, "draft-%s.gguf" % kind)
            draft.n_max, draft.n_min, draft.p_min = work.draft_len, 0, 0.0
            use_threads(draft)
        if method == "n-grams":
            params.speculative.ngram_simple.size_n = 3
            params.speculative.ngram_simple.size_m = work.draft_len
        return llama.Server(params)

    def complete(address, ids):
        body = {"prompt": ids, "n_predict": work.max_new, "temperature": 0.0, "return_tokens": True,
                "cache_prompt": False}
        request = urllib.request.Request(address + "/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def run(kind, method, batch):
        server = serve(kind, method, batch)
        address = server.listening_address
        complete(address, work.ids[0])
        with ThreadPoolExecutor(batch) as clients:
            def all_of_them():
                answers[:] = clients.map(lambda ids: complete(address, ids), work.ids)
                return [answer["tokens"] for answer in answers]

            def accepted():
                counts = [sum(answer["timings"].get(name, 0) for answer in answers)
                          for name in ("draft_n_accepted", "draft_n")]
                return "%d of %d proposals accepted" % tuple(counts) if counts[1] else ""

            answers = []
            work.measure(
                {"peer": "llama.cpp (%s)" % kind, "version": version, "method": method,
                 "batch": batch}, all_of_them, accepted)

    for kind in ("f32", "stored"):
        for method in methods:
            for batch in work.batches:
                run(kind, method, batch)


job.main(program)
