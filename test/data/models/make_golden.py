#!/usr/bin/env python3
"""Makes the checkpoints that MODELS lists with random weights, and the answers of transformers
(5.24, torch 2.15) in float32 beside them, golden.safetensors.

    python3 make_golden.py            # all of them
    python3 make_golden.py NAME...    # these

Weights, norms and geometry are odd on purpose, so that nothing that is dropped or exchanged can
pass. Where layers have a sliding window, the longest prompt is almost three windows long, so that
tiles of 64 and splits of 128 keys lie behind the window as a whole. Texts stay within longrope's
original context, since longer ones are refused.

For each checkpoint it prints the smallest difference of the two best logits at any greedy step, and
where layers have a window, or scores or logits soft caps, what that changes at most in a logit of
the longest prompt. Made again,
a golden may differ in the last bits of its numbers.
"""
import json
import os
import sys

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
GREEDY = 48
KEPT = 4                  # last positions of a prompt that have logits and hidden states
WITHIN = (1, 5, 12, 90)   # lengths of prompts
BEYOND = (1, 5, 12, 200)  # and where layers have a window
WINDOW = 70

SIZES = dict(vocab_size=67, hidden_size=48, intermediate_size=56, num_hidden_layers=2,
             num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=640,
             bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                short_factor=[1.0, 1.02, 1.1, 1.25, 1.3, 1.7],
                long_factor=[1.1, 1.5, 3.0, 7.0, 15.0, 31.0],
                original_max_position_embeddings=160)
GEMMA_ROPE = dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                  sliding_attention=dict(rope_type="default", rope_theta=1e4))
MODELS = {
    "gemma2_bf16": (
        tf.Gemma2ForCausalLM,
        tf.Gemma2Config(**{**SIZES, "intermediate_size": 40, "tie_word_embeddings": True},
                        head_dim=20, query_pre_attn_scalar=28, rms_norm_eps=1e-4,
                        sliding_window=WINDOW, attn_logit_softcapping=3.0,
                        final_logit_softcapping=0.8,
                        rope_parameters=dict(rope_type="default", rope_theta=1e4)),
        torch.bfloat16, BEYOND),
    "gemma3_bf16": (
        tf.Gemma3ForCausalLM,
        tf.Gemma3TextConfig(**{**SIZES, "num_hidden_layers": 4, "tie_word_embeddings": True},
                            head_dim=20, query_pre_attn_scalar=28, attention_bias=False,
                            rms_norm_eps=1e-4, sliding_window=WINDOW, rope_parameters=GEMMA_ROPE,
                            layer_types=["sliding_attention", "sliding_attention",
                                         "full_attention", "sliding_attention"]),
        torch.bfloat16, BEYOND),
    "glm4_moe_bf16": (
        tf.Glm4MoeForCausalLM,
        tf.Glm4MoeConfig(**SIZES, head_dim=20, attention_bias=True,
                         use_qk_norm=True, rms_norm_eps=1e-4, moe_intermediate_size=16,
                         n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1,
                         first_k_dense_replace=1, routed_scaling_factor=2.5,
                         rope_parameters=dict(rope_type="default", rope_theta=1e5,
                                              partial_rotary_factor=0.5)),
        torch.bfloat16, WITHIN),
    "glm4_unbiased_bf16": (
        tf.Glm4ForCausalLM,
        tf.Glm4Config(**{**SIZES, "vocab_size": 517, "num_hidden_layers": 3}, head_dim=24,
                      attention_bias=False, rms_norm_eps=1e-5,
                      rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                           partial_rotary_factor=0.5)),
        torch.bfloat16, WITHIN),
    "gpt_oss_mxfp4": (
        tf.GptOssForCausalLM,
        tf.GptOssConfig(**{**SIZES, "hidden_size": 64, "intermediate_size": 32}, head_dim=20,
                        attention_bias=True, num_local_experts=4, num_experts_per_tok=2,
                        sliding_window=WINDOW, rms_norm_eps=1e-4,
                        layer_types=["sliding_attention", "full_attention"],
                        rope_parameters=dict(rope_type="yarn", factor=4.0, rope_theta=1e4,
                                             beta_fast=32.0, beta_slow=1.0, truncate=False,
                                             original_max_position_embeddings=160)),
        torch.bfloat16, BEYOND),
    "mistral_window_bf16": (
        tf.MistralForCausalLM,
        tf.MistralConfig(**SIZES, head_dim=20, sliding_window=WINDOW,
                         rope_parameters=dict(rope_type="default", rope_theta=1e6)),
        torch.bfloat16, BEYOND),
    "mixtral_f16": (
        tf.MixtralForCausalLM,
        tf.MixtralConfig(**SIZES, head_dim=16, num_local_experts=4, num_experts_per_tok=2,
                         rms_norm_eps=1e-4,
                         rope_parameters=dict(rope_type="default", rope_theta=1e5)),
        torch.float16, WITHIN),
    "phi3_longrope_f16": (
        tf.Phi3ForCausalLM,
        tf.Phi3Config(**SIZES, original_max_position_embeddings=160, rope_parameters=LONGROPE),
        torch.float16, WITHIN),
    "qwen2_window_f32": (
        tf.Qwen2ForCausalLM,
        tf.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=WINDOW,
                       max_window_layers=1,
                       rope_parameters=dict(rope_type="default", rope_theta=1e5)),
        torch.float32, BEYOND),
    "qwen3_moe_bf16": (
        tf.Qwen3MoeForCausalLM,
        tf.Qwen3MoeConfig(**{**SIZES, "intermediate_size": 80}, head_dim=20,
                          moe_intermediate_size=24, num_experts=7, num_experts_per_tok=3,
                          norm_topk_prob=True, rms_norm_eps=1e-4,
                          rope_parameters=dict(rope_type="default", rope_theta=1e5)),
        torch.bfloat16, WITHIN),
    "qwen3_yarn_f32": (
        tf.Qwen3ForCausalLM,
        tf.Qwen3Config(**{**SIZES, "num_hidden_layers": 1, "max_position_embeddings": 256,
                          "tie_word_embeddings": True}, head_dim=20, rms_norm_eps=1e-4,
                       rope_parameters=dict(rope_type="yarn", factor=4.0, rope_theta=1e4,
                                            original_max_position_embeddings=64)),
        torch.float32, WITHIN),
    "smollm3_bf16": (
        tf.SmolLM3ForCausalLM,
        tf.SmolLM3Config(**{**SIZES, "num_hidden_layers": 4, "intermediate_size": 24,
                            "tie_word_embeddings": True},
                         rms_norm_eps=1e-4,
                         rope_parameters=dict(rope_type="default", rope_theta=1e5)),
        torch.bfloat16, WITHIN),
}
# Where the sum of a name's letters is no good seed, because texts would repeat a few tokens.
SEEDS = {"gemma2_bf16": 39, "gemma3_bf16": 20, "smollm3_bf16": 14}


def is_gemma(model):
    return model.config.model_type.startswith("gemma")


def scale_and_least(model, name):
    """What random numbers of a matrix are multiplied by, and the least factor of a norm. Gemma uses
    its embeddings as output weights too. With larger ones, or with smaller queries and keys, its
    texts would repeat one token."""
    is_vocab = "embed" in name or "lm_head" in name
    return ((0.05 if is_gemma(model) else 0.4) if is_vocab else 0.2,
            1.4 if is_gemma(model) and ("q_norm" in name or "k_norm" in name) else 0.5)


def randomise(model, generator):
    offset = 1.0 if is_gemma(model) else 0.0  # its factors are 1 + w
    for name, p in model.named_parameters():
        scale, least = scale_and_least(model, name)
        noise = torch.randn(p.shape, generator=generator)
        if p.dim() == 1 and "norm" in name:
            p.data.copy_(torch.rand(p.shape, generator=generator) * (1.5 - least) + least - offset)
        else:
            p.data.copy_(noise * scale)
    for name, b in model.named_buffers():  # what experts of GLM are chosen by, beside their scores
        if name.endswith("e_score_correction_bias"):
            b.copy_(torch.randn(b.shape, generator=generator) * 0.2)


ELEMENTS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def as_mxfp4(model, folder, generator):
    """Makes the experts' matrices random in MXFP4, and writes the checkpoint as OpenAI has
    published its own, with blocks of 16 bytes and their scales. The file's own matrices are
    [experts, n_in, rows]."""
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, n_in, rows = tensors.pop(name).shape
        codes = torch.randint(0, 16, (experts, rows, n_in // 32, 32), generator=generator)
        scales = torch.randint(121, 126, (experts, rows, n_in // 32), generator=generator)
        values = ELEMENTS[codes] * torch.exp2(scales[..., None].float() - 127)
        model.get_parameter(name).data.copy_(
            values.reshape(experts, rows, n_in).transpose(1, 2))
        tensors[name + "_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)
        tensors[name + "_scales"] = scales.to(torch.uint8)
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    config["quantization_config"] = {"quant_method": "mxfp4"}
    with open(path, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")


def load(kind, folder, **changes):
    return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                **changes).eval()


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


@torch.no_grad()
def effect_of(kind, folder, answers, **without):
    other = load(kind, folder, **without)
    logits = other(answers["prompt_3"][None], use_cache=False).logits[0, -KEPT:]
    return (logits - answers["logits_3"]).abs().max().item()


def make(name):
    kind, config, dtype, lengths = MODELS[name]
    folder = os.path.join(HERE, name)
    generator = torch.Generator().manual_seed(SEEDS.get(name, sum(map(ord, name))))
    model = kind(config).float().eval()
    randomise(model, generator)
    model.to(dtype).save_pretrained(folder)
    if name.endswith("mxfp4"):
        as_mxfp4(model, folder, generator)
    model = load(kind, folder)
    prompts = [torch.randint(3, config.vocab_size, (n,), generator=generator).tolist()
               for n in lengths]
    answers = golden(model, prompts)
    save_file(answers, os.path.join(folder, "golden.safetensors"))
    print(name, "smallest margin", min(answers[f"margin_{i}"].min().item() for i in range(4)),
          "largest logit", answers["logits_3"].abs().max().item())
    if lengths is BEYOND:
        print(name, "effect of the window", effect_of(kind, folder, answers, sliding_window=10**6))
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, cap, None):
            print(name, "effect of", cap, effect_of(kind, folder, answers, **{cap: None}))


for chosen in sys.argv[1:] or MODELS:
    make(chosen)
