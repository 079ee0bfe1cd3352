#!/usr/bin/env python3
"""Compares a checkpoint's log-probabilities with those of Hugging Face transformers.

    python3 check_logits.py MODEL_DIR [--generate build/examples/generate] [--tolerance 0.01]

Both compute, in float32, how probable the tokens of a few prompts are, each behind those before it.
The prompts are texts if the checkpoint has a tokenizer, and they become ids by transformers'
tokenizer, so that the models alone are compared; else they are any ids. It prints the largest
difference of a prompt, and exits with 1 if one is above the tolerance. Without transformers and
torch it prints why it compares nothing.

The same numbers in another order of summation differ in the last bits of a float32, which the
layers magnify: differences of 1e-5 to 1e-3 are to be expected, while an error in the reading of a
checkpoint shows in the first digit.
"""
import argparse
import json
import subprocess
import sys

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"SKIP check_logits: {missing}; pip install torch transformers")
    sys.exit(0)

TEXTS = ["The capital of France is Paris, and the capital of Italy is Rome.",
         "def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n",
         "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89"]


def prompts_of(directory, vocabulary):
    """A list of ids for each prompt."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        ids = [tokenizer(text)["input_ids"] for text in TEXTS]
        return [prompt for prompt in ids if len(prompt) > 1]
    except (OSError, ValueError, KeyError):  # there is none
        return [[(7919 * i + 104729 * k) % vocabulary for k in range(20)] for i in range(3)]


def transformers_logprobs(model, ids):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float()
    chosen = torch.log_softmax(logits, dim=-1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])
    return chosen[:, 0].tolist()


def our_logprobs(generate, directory, prompts):
    lines = "".join(json.dumps({"ids": ids}) + "\n" for ids in prompts)
    run = subprocess.run([generate, "--target", directory, "--prompts", "-", "--score",
                          "--logprobs", "--in-order", "--compute", "f32"],
                         input=lines, stdout=subprocess.PIPE, check=True, encoding="utf-8")
    return [json.loads(line)["prompt_logprobs"] for line in run.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description="compares log-probabilities with transformers'")
    parser.add_argument("model", help="a folder as on Hugging Face")
    parser.add_argument("--generate", default="build/examples/generate")
    parser.add_argument("--tolerance", type=float, default=0.01)
    args = parser.parse_args()

    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    model.eval()
    prompts = prompts_of(args.model, model.config.vocab_size)
    worst = 0.0
    for ids, ours in zip(prompts, our_logprobs(args.generate, args.model, prompts)):
        theirs = transformers_logprobs(model, ids)
        difference = max(abs(a - b) for a, b in zip(ours, theirs))
        worst = max(worst, difference)
        print(f"{len(ids)} tokens: largest difference {difference:.2e}")
    print("equal within the tolerance" if worst <= args.tolerance else "DIFFERENT")
    return 0 if worst <= args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
