#!/usr/bin/env python3
"""Makes the checkpoints mistral_window_bf16 and phi3_longrope_f16 with random weights, and the
answers of transformers (5.24, torch 2.15) in float32 beside them, golden.safetensors.

    python3 make_golden.py

Weights, norms and geometry are odd on purpose, so that nothing that is dropped or exchanged can
pass. Texts stay within the sliding window and longrope's original context, since longer ones are
refused.
"""
import os

import torch
import transformers as tf
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
GREEDY = 48
KEPT = 8   # positions at the end of a prompt that have logits and hidden states
LENGTHS = (1, 5, 12, 90)

SIZES = dict(vocab_size=67, hidden_size=48, intermediate_size=56, num_hidden_layers=2,
             num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=640,
             bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                short_factor=[1.0, 1.02, 1.1, 1.25, 1.3, 1.7],
                long_factor=[1.1, 1.5, 3.0, 7.0, 15.0, 31.0],
                original_max_position_embeddings=160)
MODELS = {
    "mistral_window_bf16": (
        tf.MistralForCausalLM,
        tf.MistralConfig(**SIZES, head_dim=20, sliding_window=160,
                         rope_parameters=dict(rope_type="default", rope_theta=1e6)),
        torch.bfloat16),
    "phi3_longrope_f16": (
        tf.Phi3ForCausalLM,
        tf.Phi3Config(**SIZES, original_max_position_embeddings=160, rope_parameters=LONGROPE),
        torch.float16),
}


def randomise(model, generator):
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.dim() == 1:
            p.data.copy_(torch.rand(p.shape, generator=generator) + 0.5)
        else:
            p.data.copy_(noise * (0.4 if "embed" in name or "lm_head" in name else 0.2))


@torch.no_grad()
def golden(model, prompts):
    out = {}
    for i, ids in enumerate(prompts):
        tokens = torch.tensor([ids])
        answer = model(tokens, output_hidden_states=True, use_cache=False)
        out[f"prompt_{i}"] = tokens[0].clone()
        out[f"logits_{i}"] = answer.logits[0, -KEPT:].float().clone()
        out[f"hidden_{i}"] = torch.stack([h[0, -KEPT:].float() for h in answer.hidden_states])
        margins = []
        for _ in range(GREEDY):
            top = model(tokens, use_cache=False).logits[0, -1].float().topk(2)
            margins.append((top.values[0] - top.values[1]).item())
            tokens = torch.cat([tokens, top.indices[:1].view(1, 1)], 1)
        out[f"greedy_{i}"] = tokens[0, len(ids):].clone()
        out[f"margin_{i}"] = torch.tensor(margins)
    return out


for name, (kind, config, dtype) in MODELS.items():
    folder = os.path.join(HERE, name)
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model = kind(config).float().eval()
    randomise(model, generator)
    model.to(dtype).save_pretrained(folder)
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    prompts = [torch.randint(3, config.vocab_size, (n,), generator=generator).tolist()
               for n in LENGTHS]
    answers = golden(model, prompts)
    save_file(answers, os.path.join(folder, "golden.safetensors"))
    print(name, "smallest margin", min(answers[f"margin_{i}"].min().item() for i in range(4)),
          "largest logit", answers["logits_3"].abs().max().item())
