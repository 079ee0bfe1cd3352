#!/usr/bin/env python3
"""Makes the folder `emoji`: a checkpoint of 16 KB that answers three prompts with known emoji.

    python3 make_emoji.py [FOLDER]        writes into FOLDER, or else into emoji beside this file

It needs nothing but Python. The answers are known by construction and not by a run of any program:
  - The tokenizer is byte-level BPE with MERGES. It cuts every emoji into two to four tokens, most
    of which begin or end inside a character. The byte of a character can be a token by itself.
  - Every token of an answer occurs in one place only, so it always has the same follower. Behind
    the last token of an answer, and behind tokens of no answer, comes the end.
  - The layer adds nothing: o_proj and down_proj are zero. What reaches lm_head is the embedding of
    the last token, a row of a Hadamard matrix or the negative of one. Such rows are orthogonal or
    opposite. The row of lm_head for a token is the embedding of the token before it, so the
    follower's logit is 32, and all others are 0 or below.

known.tsv has a line for each prompt: the prompt, a tab, the answer. The first prompt quotes its
answer, so that a draft from n-grams is right; the second misquotes it, so that this draft is wrong
in the middle; the third has no quotation.
"""
import json
import os
import struct
import sys

KNOWN = [("smile 😀, 😂 & 🥳! smile", " 😀, 😂 & 🥳!"),
         ("family:👶 👨‍👩‍👦. family", ":👶 👨‍👩‍👧."),
         ("flag", " 🇫🇷⚡ 🚀?")]
# Pieces that are put together, the first ones first, as bytes in hexadecimal.
MERGES = """98+80 9f+9880 98+82 20+f0 20f0+9f 20f09f+a5
    91+a8 91a8+e2 20f09f+91a8e2 80+8d 91+a9 9f+91a9 f0+9f91a9 808d+f09f91a9 808df09f91a9+e2
    808d+f0 91+a7 9f+91a7
    20f09f+87 87+b7 9f+87b7 ab+f0 20f09f+9a""".split()
HIDDEN, HEAD, MIDDLE, PADDED = 32, 8, 8, 64  # widths, and the vocabulary with padding


def byte_letters():
    """The letter that stands for each byte in tokenizer.json, as GPT-2 has it."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def spelled(piece):
    return "".join(LETTERS[b] for b in piece)


def cut(text):
    """The pieces of a text by the merges, in the order of their ranks."""
    pieces = [bytes([b]) for b in text.encode()]
    for pair in PAIRS:
        i = 0
        while i + 1 < len(pieces):
            if (pieces[i], pieces[i + 1]) == pair:
                pieces[i:i + 2] = [pieces[i] + pieces[i + 1]]
            i += 1
    return pieces


LETTERS = byte_letters()
PAIRS = [tuple(bytes.fromhex(side) for side in merge.split("+")) for merge in MERGES]
BYTES = sorted({b for known in KNOWN for b in "".join(known).encode()})
VOCABULARY = [None, *(bytes([b]) for b in BYTES), *(a + b for a, b in PAIRS)]  # 0 is <end>
ID = {piece: i for i, piece in enumerate(VOCABULARY)}


def followers():
    """Which token follows which. A token of two places would be a mistake in the tables above."""
    after = {}
    for prompt, answer in KNOWN:
        chain = [cut(prompt)[-1], *cut(answer), None]
        for here, there in zip(chain, chain[1:]):
            assert here not in after, f"{here} is there twice"
            after[here] = there
    return {ID[here]: ID[there] for here, there in after.items()}


def matrix(rows, columns, value):
    return [[value(i, j) for j in range(columns)] for i in range(rows)]


def embeddings(after):
    """Two matrices: embed_tokens, and lm_head. Tokens before the end get the rows of the Hadamard
    matrix, and their sum is the end's row; the others get the negative rows."""
    last = [t for t in range(len(VOCABULARY)) if after.get(t, 0) == 0]
    other = [t for t in range(len(VOCABULARY)) if t not in last]
    assert max(len(last), len(other)) <= HIDDEN and len(VOCABULARY) <= PADDED
    embed = matrix(PADDED, HIDDEN, lambda i, j: 0)
    for sign, tokens in (1, last), (-1, other):
        for row, t in enumerate(tokens):
            embed[t] = [sign * (-1) ** bin(row & j).count("1") for j in range(HIDDEN)]
    head = matrix(PADDED, HIDDEN, lambda i, j: 0)
    for t in range(len(VOCABULARY)):
        follower = after.get(t, 0)
        head[follower] = [a + b for a, b in zip(head[follower], embed[t])]
    return embed, head


def tensors():
    def some(i, j):  # anything but zero
        return ((i * 7 + j * 3) % 9 - 4) / 8

    def zero(i, j):
        return 0

    embed, head = embeddings(followers())
    layer = {"self_attn.q_proj": matrix(2 * HEAD, HIDDEN, some),
             "self_attn.k_proj": matrix(HEAD, HIDDEN, some),
             "self_attn.v_proj": matrix(HEAD, HIDDEN, some),
             "self_attn.o_proj": matrix(HIDDEN, 2 * HEAD, zero),
             "mlp.gate_proj": matrix(MIDDLE, HIDDEN, some),
             "mlp.up_proj": matrix(MIDDLE, HIDDEN, some),
             "mlp.down_proj": matrix(HIDDEN, MIDDLE, zero),
             "input_layernorm": [1] * HIDDEN, "post_attention_layernorm": [1] * HIDDEN}
    return {"model.embed_tokens.weight": embed, "lm_head.weight": head,
            "model.norm.weight": [1] * HIDDEN,
            **{f"model.layers.0.{name}.weight": values for name, values in layer.items()}}


def bfloat16(value):
    """The two bytes of a number that bfloat16 has exactly."""
    low, high = struct.unpack("<2H", struct.pack("<f", value))
    assert low == 0
    return struct.pack("<H", high)


def safetensors():
    header, data = {}, b""
    for name, values in tensors().items():
        deep = isinstance(values[0], list)
        shape = [len(values), len(values[0])] if deep else [len(values)]
        begin = len(data)
        data += b"".join(map(bfloat16, sum(values, []) if deep else values))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def config():
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
            "intermediate_size": MIDDLE, "num_hidden_layers": 1, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": HEAD, "hidden_act": "silu",
            "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
            "tie_word_embeddings": False, "vocab_size": PADDED, "eos_token_id": 0,
            "torch_dtype": "bfloat16"}


def tokenizer():
    end = {"id": 0, "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "vocab": {spelled(piece) if piece else "<end>": i
                       for i, piece in enumerate(VOCABULARY)},
             "merges": [f"{spelled(a)} {spelled(b)}" for a, b in PAIRS]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end],
            "normalizer": None, "pre_tokenizer": by_bytes, "post_processor": None,
            "decoder": by_bytes, "model": model}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "emoji")
    os.makedirs(folder, exist_ok=True)
    files = {"config.json": json.dumps(config(), indent=1).encode() + b"\n",
             "tokenizer.json": json.dumps(tokenizer(), ensure_ascii=False).encode() + b"\n",
             "known.tsv": "".join(f"{prompt}\t{answer}\n" for prompt, answer in KNOWN).encode(),
             "model.safetensors": safetensors()}
    for name, content in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)


if __name__ == "__main__":
    main()
