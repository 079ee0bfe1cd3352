"""Measures llama.cpp as bench_perplexity measures this library: the same tokens in the same chunks,
each token of a chunk but its first being predicted. llama.cpp's own program for this leaves out the
first half of every chunk and has its own tokenizer, so its figures do not compare.

    bench_perplexity --model DIR --text FILE --ids IDS       writes the tokens, one a line
    perplexity.py MODEL.gguf IDS [CONTEXT [THREADS]]         (256, 2)

A file's quantised matrices are multiplied as llama.cpp does it, which rounds activations to 8 bits.
Caches are f32 and attention is computed step by step, in f32, as this library does both. Needs
llama-cpp-python and numpy, as `make setup-peers` installs them.
"""
import ctypes
import math
import sys

import llama_cpp as llama
import numpy


def open_context(path, size, threads):
    quiet = llama.llama_log_callback(lambda *_: None)
    llama.llama_log_set(quiet, None)
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    if not model:
        sys.exit("perplexity.py: llama.cpp cannot load " + path)
    params = llama.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = size
    params.n_threads = params.n_threads_batch = threads
    params.type_k = params.type_v = llama.GGML_TYPE_F32
    params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama.llama_init_from_model(model, params)
    if not context:
        sys.exit("perplexity.py: no context for " + path)
    return model, context, quiet  # libllama keeps no reference to the callback


def logits_of(context, batch, ids, vocab):
    """The logits of every token of a chunk, which is computed from an empty cache."""
    llama.llama_memory_clear(llama.llama_get_memory(context), True)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.logits[i] = token, i, 1
        batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
    if llama.llama_decode(context, batch):
        sys.exit("perplexity.py: llama_decode failed")
    logits = ctypes.cast(llama.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
    return numpy.ctypeslib.as_array(logits, (len(ids), vocab))


def losses(logits, ids):
    """The negative log-likelihoods of these tokens, in double."""
    logits = logits.astype(numpy.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return numpy.log(numpy.exp(logits).sum(axis=1)) - logits[numpy.arange(len(ids)), ids]


def main(path, ids_path, size=256, threads=2):
    with open(ids_path, encoding="ascii") as file:
        ids = [int(line) for line in file]
    model, context, _quiet = open_context(path, size, threads)
    vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    batch = llama.llama_batch_init(size, 0, 1)
    total, scored = 0.0, 0
    for at in range(0, len(ids), size):
        chunk = ids[at:at + size]
        total += losses(logits_of(context, batch, chunk, vocab)[:-1], chunk[1:]).sum()
        scored += len(chunk) - 1
    print("model       %s\nclass       llama.cpp of llama-cpp-python %s\nbytes       %d\n"
          "tokens      %d scored of %d, in chunks of %d\nloss        %.6f\nperplexity  %.4f" %
          (path, llama.__version__, llama.llama_model_size(model), scored, len(ids), size,
           total / scored, math.exp(total / scored)))
    llama.llama_batch_free(batch)
    llama.llama_free(context)
    llama.llama_model_free(model)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4, 5):
        sys.exit(__doc__)
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
