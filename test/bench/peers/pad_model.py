"""Writes a Hugging Face directory as a larger model that computes the same, so that models whose
rows are too short for types with blocks of 256 can be measured with these types.

    pad_model.py MODEL_DIR OUT_DIR

The rows of every matrix get zeros behind them, up to a multiple of 256. The residual stream of n
values gets zeros, too; a norm then divides by the root of a mean that is n/m of what it was, for
which its weights and its epsilon make up. Attention heads are added whose queries and outputs are
zero, as many to each key/value head. So all logits are those of the model but for rounding. Norms
are written as f32, since most products with the root of n/m are not of 16 bits.

For qwen3 with one safetensors file and tied embeddings, such as the demo pair.
"""
import json
import os
import shutil
import sys

import gguf
import numpy as np

import to_gguf

BLOCK = 256


def up(n):
    return -(-n // BLOCK) * BLOCK


def spread(array, axis, parts, wider):
    """Cuts an axis into equal parts and puts zeros behind each, so that the axis has `wider` parts'
    length in all."""
    shape = list(array.shape)
    split = array.reshape(*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1:])
    widths = [(0, 0)] * split.ndim
    widths[axis + 1] = (0, (wider - shape[axis]) // parts)
    shape[axis] = wider
    return np.pad(split, widths).reshape(shape)


def pad(name, array, config, wide):
    """A tensor of the larger model."""
    hidden, groups = config["hidden_size"], config["num_key_value_heads"]
    width = config["num_attention_heads"] * config["head_dim"]
    kind = name.split(".")[-2]
    if kind in ("q_norm", "k_norm"):
        return array
    if array.ndim == 1:
        scale = np.float32((hidden / wide["hidden_size"]) ** 0.5)
        return spread(array * scale, 0, 1, wide["hidden_size"])
    inputs = {"o_proj": (groups, wide["num_attention_heads"] * wide["head_dim"]),
              "down_proj": (1, wide["intermediate_size"])}
    outputs = {"q_proj": (groups, width // config["num_attention_heads"] *
                          wide["num_attention_heads"]),
               "o_proj": (1, wide["hidden_size"]), "down_proj": (1, wide["hidden_size"]),
               "gate_proj": (1, wide["intermediate_size"]),
               "up_proj": (1, wide["intermediate_size"])}
    array = spread(array, 1, *inputs.get(kind, (1, wide["hidden_size"])))
    return spread(array, 0, *outputs[kind]) if kind in outputs else array


def widen(config):
    """The configuration of the larger model."""
    wide, heads = dict(config), config["num_attention_heads"]
    wide["hidden_size"] = up(config["hidden_size"])
    wide["intermediate_size"] = up(config["intermediate_size"])
    wide["rms_norm_eps"] *= config["hidden_size"] / wide["hidden_size"]
    while wide["num_attention_heads"] * config["head_dim"] % BLOCK:
        wide["num_attention_heads"] += config["num_key_value_heads"]
    print("%d heads of %d become %d" % (heads, config["head_dim"], wide["num_attention_heads"]))
    return wide


def write(path, tensors):
    """A safetensors file of arrays of float32, whose matrices are written as bf16."""
    header, blobs, at = {}, [], 0
    for name, array in tensors:
        stored = to_gguf.TYPES["F32" if array.ndim == 1 else "BF16"]
        blobs.append(gguf.quants.quantize(array, stored).tobytes())
        header[name] = {"dtype": stored.name, "shape": array.shape,
                        "data_offsets": [at, at + len(blobs[-1])]}
        at += len(blobs[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def main(source, out):
    config = to_gguf.read(source, "config.json")
    if config["model_type"] != "qwen3" or not config["tie_word_embeddings"]:
        sys.exit("pad_model.py: %s is not qwen3 with tied embeddings" % source)
    wide = widen(config)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(wide, file, indent=2)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(os.path.join(source, name), out)
    write(os.path.join(out, "model.safetensors"),
          ((name, pad(name, gguf.quants.dequantize(raw, stored), config, wide))
           for name, raw, stored in to_gguf.tensors(os.path.join(source, "model.safetensors"))))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
