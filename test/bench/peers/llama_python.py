"""Runs llama-cpp-python plainly and with prompt lookup at batch 1, which is all that its Llama
class offers.

The only draft that it comes with is prompt lookup (LlamaPromptLookupDecoding). Weights are as the
checkpoint stores them, and f32; caches are f32, and flash attention is off, as in llama_server.py.
It is compiled on this machine and so uses all of its instruction sets.
"""
import os

import job


def program(work):
    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    has = llama_cpp.llama_print_system_info().decode()
    version = "llama-cpp-python %s (%s)" % (llama_cpp.__version__, " ".join(
        word for word in ("AVX2", "AVX512") if word + " = 1" in has))

    # Prompt lookup needs the logits of every position; only with logits_all is there room for a
    # long prompt's.
    def run(kind, method, draft):
        model = llama_cpp.Llama(os.path.join(work.gguf, "target-%s.gguf" % kind), verbose=False,
                                draft_model=draft,
                                n_ctx=work.longest + work.max_new + 64, n_threads=work.threads,
                                logits_all=draft is not None, n_threads_batch=work.threads,
                                type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)

        def generate(ids):
            out = []
            for token in model.generate(ids, temp=0.0, repeat_penalty=1.0, reset=True):
                out.append(token)
                if token in work.eos or len(out) == work.max_new:
                    break
            return out

        generate(work.ids[0])
        work.measure(
            {"peer": "llama-cpp-python (%s)" % kind, "version": version, "method": method,
             "batch": 1},
            lambda: [generate(ids) for ids in work.ids], "batch 1 only")

    for kind in ("f32", "stored"):
        run(kind, "plain", None)
        run(kind, "prompt lookup", LlamaPromptLookupDecoding(num_pred_tokens=work.draft_len))


job.main(program)
