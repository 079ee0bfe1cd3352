#!/usr/bin/env python3
"""Samples from random logits with the library and with the logits processors of Hugging Face
Transformers, and compares the tokens.

    compare_filters.py PROGRAM [--rows N] [--seed N]

PROGRAM is the program built of test/cpu/print_samples.c. The processors get the same logits, in the
order of the library's steps. What they make of them plus the noise of docs/numerics.md, computed
here in double by numpy, is largest at the token that the library should choose. A choice is left
out where the two largest values are closer than the rounding of floats can tell, and a row where a
filter leaves another number of ids if its bound is moved by 10^-6: there both are right. The exit
status is 1 when a token differs.
"""
import argparse, subprocess, sys

import numpy as np
import torch
import transformers
from transformers.generation import logits_process as hf

DRAWS = 128
CLOSE = 1e-4


def noise(seed, position, n):
    """The noise of ids 0 .. n - 1."""
    quads = np.arange((n + 3) // 4, dtype=np.uint64)
    zeros = np.zeros_like(quads)
    c = [zeros + np.uint64(position), quads, zeros, zeros]
    low = np.uint64(0xffffffff)
    key = [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xd2511f53), c[2] * np.uint64(0xcd9e8d57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), b & low,
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9e3779b9) & 0xffffffff, (key[1] + 0xbb67ae85) & 0xffffffff]
    x = np.stack(c, axis=1).reshape(-1)[:n].astype(np.float64)
    return -np.log(-np.log1p(-(x + 0.5) / 2.0**32))


def processed(logits, tokens, o, move=0.0):
    """What the processors leave of the logits: -infinity for ids that are filtered out."""
    steps = []
    if o["repetition"] != 1.0:
        steps.append(hf.RepetitionPenaltyLogitsProcessor(o["repetition"]))
    steps.append(hf.TemperatureLogitsWarper(o["temperature"]))
    if o["top_k"]:
        steps.append(hf.TopKLogitsWarper(o["top_k"]))
    if o["top_p"] < 1.0:
        steps.append(hf.TopPLogitsWarper(o["top_p"] + move))
    if o["typical_p"] < 1.0:
        steps.append(hf.TypicalLogitsWarper(o["typical_p"] + move))
    if o["min_p"] > 0.0:
        steps.append(hf.MinPLogitsWarper(o["min_p"] + move))
    scores = torch.from_numpy(logits.astype(np.float64))[None]
    for step in steps:
        scores = step(torch.tensor([tokens]), scores)
    return scores[0].numpy()


def random_row(rng):
    n = int(rng.choice([2, 5, 17, 100, 1000, 4000]))
    single = lambda x: float(np.float32(x))
    options = {"seed": int(rng.integers(2**63)), "temperature": single(rng.uniform(0.3, 2.0)),
               "top_k": int(rng.integers(1, n + 1)) if rng.random() < 0.4 else 0,
               "top_p": single(rng.uniform(0.05, 0.99)) if rng.random() < 0.4 else 1.0,
               "typical_p": single(rng.uniform(0.05, 0.99)) if rng.random() < 0.4 else 1.0,
               "min_p": single(rng.uniform(0.001, 0.5)) if rng.random() < 0.4 else 0.0,
               "repetition": single(rng.uniform(0.7, 2.0)) if rng.random() < 0.5 else 1.0}
    tokens = [int(t) for t in rng.integers(0, n, size=int(rng.integers(1, 50)))]
    return options, tokens, (rng.standard_normal(n) * rng.uniform(0.5, 5.0)).astype(np.float32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    rows = [random_row(rng) for _ in range(args.rows)]
    lines = []
    for o, tokens, logits in rows:
        names = ("temperature", "top_k", "top_p", "typical_p", "min_p", "repetition")
        lines.append(" ".join([str(o["seed"])] + [
            float(o[k]).hex() if isinstance(o[k], float) else str(o[k]) for k in names]))
        lines.append(" ".join(map(str, [len(tokens)] + tokens)))
        lines.append(" ".join([str(len(logits))] + [float(x).hex() for x in logits]))
    out = subprocess.run([args.program], input="\n".join(lines) + "\n", text=True, check=True,
                         stdout=subprocess.PIPE).stdout.splitlines()
    assert len(out) == len(rows)
    compared = left_out = wrong = 0
    for line, (o, tokens, logits) in zip(out, rows):
        scores = processed(logits, tokens, o)
        kept = np.isfinite(scores)
        if any((np.isfinite(processed(logits, tokens, o, move)) != kept).any()
               for move in (-1e-6, 1e-6)):
            left_out += DRAWS
            continue
        for draw, id in enumerate(map(int, line.split())):
            values = scores + noise(o["seed"], len(tokens) + draw, len(logits))
            best = int(np.argmax(values))
            rest = np.delete(values, best).max(initial=-np.inf)
            if values[best] - rest < CLOSE:
                left_out += 1
                continue
            compared += 1
            if id != best:
                wrong += 1
                if wrong <= 10:
                    print(f"{o}, draw {draw}: {id} instead of {best}, which "
                          f"{'is' if kept[id] else 'is not'} left; {int(kept.sum())} of "
                          f"{len(logits)} are")
    print(f"transformers {transformers.__version__}: {compared} tokens compared, {wrong} differ, "
          f"{left_out} left out as too close")
    return wrong > 0 or compared < 100 * left_out


sys.exit(main())
