"""Writes a Hugging Face directory as a GGUF file, so that llama.cpp and OpenVINO run the weights
that everybody else runs.

    to_gguf.py MODEL_DIR OUT.gguf [f32|f16|q8_0|q4_0]

Matrices keep the type that the checkpoint stores them in, so a file has as many bytes as the
checkpoint. Norms and biases become f32, as in llama.cpp's own converter (conversion/base.py,
prepare_tensors: "Most of the codebase that takes in 1D tensors or norms only handles F32 tensors"),
and the metadata keys are those that it writes. A type as the last argument is that of the matrices
instead. With f32 they have the same values, but llama.cpp then computes in f32 rather than round
activations to the weights' type. With q4_0 the embedding table and the output layer are q8_0, as
this library's own 4-bit weights have them; llama.cpp's quantizer takes Q6_K there unless it is told
otherwise.

A model must be of the architecture qwen2 or qwen3 (for others, weights would have to be permuted),
with one safetensors file and byte-level BPE with Qwen's split. A checkpoint without a tokenizer
(make_checkpoint) gets a vocabulary of placeholders. The peers' table shows whether the export is
right, since greedy tokens are compared with ours.
"""
import json
import os
import sys

import gguf
import numpy as np

ARCHS = {"qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}
TYPES = {name: gguf.GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0")}


def read(directory, name):
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return json.load(file)


def tensors(path):
    """Yields (name, bytes, type) for each tensor of a safetensors file: 8 bytes of length, a JSON
    header, the data. The array of bytes has the tensor's shape, its last dimension in bytes."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    data = np.memmap(path, np.uint8, "r", 8 + size)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape = entry["shape"]
        width = {"F32": 4, "F16": 2, "BF16": 2}[entry["dtype"]]
        raw = data[slice(*entry["data_offsets"])]
        yield name, raw.reshape(*shape[:-1], shape[-1] * width), TYPES[entry["dtype"]]


def convert(raw, stored, wanted):
    """Returns a tensor's bytes in the type that is wanted."""
    if stored == wanted:
        return raw
    return gguf.quants.quantize(gguf.quants.dequantize(raw, stored), wanted)


def type_of(name, stored, wanted):
    """The type in which a matrix is written."""
    if wanted == TYPES["Q4_0"] and name in ("model.embed_tokens.weight", "lm_head.weight"):
        return TYPES["Q8_0"]
    return stored if wanted is None else wanted


def add_config(writer, config):
    rope = config.get("rope_parameters", config)
    if rope.get("rope_type", "default") != "default":
        sys.exit("to_gguf.py: only default rope is exported")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(rope.get("rope_theta", 10000.0))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def add_placeholders(writer, config):
    """A vocabulary of the bytes, one merge and names for all other ids. OpenVINO's tokenizer needs
    these, and a control token."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(byte) for byte in [*printable, *range(256, 512 - len(printable))]]
    pieces = [*letters, "ab"]
    n = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(pieces + ["[PAD%d]" % i for i in range(len(pieces), n)])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(pieces) +
                           [gguf.TokenType.UNUSED] * (n - 1 - len(pieces)) +
                           [gguf.TokenType.CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(n - 1)
    writer.add_add_bos_token(False)


def add_tokenizer(writer, config, tokenizer):
    pieces = {i: piece for piece, i in tokenizer["model"]["vocab"].items()}
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    pieces.update(special)
    ids = range(config["vocab_size"])
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([pieces.get(i, "[PAD%d]" % i) for i in ids])
    writer.add_token_types([
        gguf.TokenType.CONTROL
        if i in special else gguf.TokenType.NORMAL if i in pieces else gguf.TokenType.UNUSED
        for i in ids])
    writer.add_token_merges([
        " ".join(merge) if isinstance(merge, list) else merge for merge in merges])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def add_tensors(writer, config, path, wanted):
    arch = ARCHS[config["model_type"]]
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    main_type = TYPES["F32"] if wanted is None else wanted
    for name, raw, stored in tensors(path):
        known = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if known is None:
            sys.exit("to_gguf.py: no GGUF name for %s" % name)
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        kind = TYPES["F32"] if raw.ndim == 1 else type_of(name, stored, wanted)
        main_type = kind if raw.ndim > 1 and wanted is None else main_type
        writer.add_tensor(known, convert(raw, stored, kind), raw_dtype=kind)
    prefix = "ALL_" if main_type == TYPES["F32"] else "MOSTLY_"
    writer.add_file_type(gguf.LlamaFileType[prefix + main_type.name])


def main(directory, out, wanted=None):
    config = read(directory, "config.json")
    if config["model_type"] not in ARCHS:
        sys.exit("to_gguf.py: %s is not one of %s" % (config["model_type"], ", ".join(ARCHS)))
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[ARCHS[config["model_type"]]])
    add_config(writer, config)
    if os.path.exists(os.path.join(directory, "tokenizer.json")):
        add_tokenizer(writer, config, read(directory, "tokenizer.json"))
    else:
        add_placeholders(writer, config)
    add_tensors(writer, config, os.path.join(directory, "model.safetensors"),
                TYPES[wanted.upper()] if wanted else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
