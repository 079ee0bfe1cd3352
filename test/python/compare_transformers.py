"""Compares greedy tokens with Transformers' on the small checkpoints, in float32.

    python3 test/python/compare_transformers.py

Needs torch and transformers. Two programs round differently, so tokens are equal up to the first
position where Transformers' two best logits are closer than MARGIN, and answers are compared so
far. The library decodes speculatively, all at once; Transformers does one after the other.
"""

import os
import sys

import torch
import transformers
from support import MODELS, specbatch

MARGIN = 1e-3  # 10 times what a logit of these checkpoints is off by (docs/numerics.md)
N_NEW = 48


def transformers_answer(model, prompt):
    """The greedy tokens up to the first one that is too close to call."""
    ids = torch.tensor([prompt])
    # Without a mask it would leave out a token whose id is that of padding.
    made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=N_NEW,
                          do_sample=False, output_scores=True, return_dict_in_generate=True)
    ids = made.sequences[0, len(prompt):].tolist()
    for i, scores in enumerate(made.scores):
        best = torch.topk(scores[0], 2).values
        if best[0] - best[1] < MARGIN:
            return ids[:i]
    return ids


def compare(path):
    """Returns how many tokens were compared; exits where one differs."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager").eval()
    vocab = model.config.vocab_size
    prompts = [[(11 * i + 5 * k) % (vocab - 4) for k in range(2 + 3 * i)] for i in range(6)]
    with specbatch.Model.open(path, compute="f32") as target:
        results = specbatch.hf.generate(target, None, prompts, max_new_tokens=N_NEW,
                                        assistant_model=specbatch.Draft.ngram(min_match=1))
    compared = 0
    for prompt, result in zip(prompts, results):
        want = transformers_answer(model, prompt)
        if result.ids[:len(want)] != want:
            sys.exit(f"{path}: {prompt}: {result.ids} instead of {want}")
        compared += len(want)
    return compared


def main():
    torch.set_num_threads(1)  # so small models gain nothing by threads that wait for each other
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, "
          f"libspecbatch {specbatch.library_version()}")
    names = sorted(name for name in os.listdir(MODELS)
                   if os.path.exists(os.path.join(MODELS, name, "golden.safetensors")))
    total = 0
    for name in names:
        compared = compare(os.path.join(MODELS, name))
        print(f"{name}: {compared} of {6 * N_NEW} tokens compared, all equal", flush=True)
        total += compared
    if total < len(names) * 2 * N_NEW:
        sys.exit("too few tokens could be compared to mean anything")


if __name__ == "__main__":
    main()
