#!/usr/bin/env python3
"""Makes torch/pytorch_model.bin by torch itself (2.15): a file that has all that a model's
state_dict() can have, to hold the reader of such files against. Tensor number i of the list below,
but the tied one, counts 100 i, 100 i + 1, ... in its own type.

    python3 make_torch.py
"""
import os

import torch


def count(start, shape, dtype=torch.float32):
    return (torch.arange(torch.Size(shape).numel()) + start).reshape(shape).to(dtype)


model = torch.nn.Module()
model.embed = torch.nn.Embedding(4, 3)
model.embed.weight.data = count(0, (4, 3))
model.head = torch.nn.Linear(3, 4)
model.head.weight = model.embed.weight  # tied: both names have one storage
model.head.bias.data = count(100, (4,), torch.bfloat16)
model.register_buffer("halves", count(200, (2, 2), torch.float16))
model.register_buffer("steps", torch.tensor(300))
model.register_buffer("none", torch.zeros(0, 5))
model.register_buffer("part", count(500 - 4, (4, 2))[2:])
state = model.state_dict()
state["parameter"] = torch.nn.Parameter(count(600, (1, 2), torch.float64))
state["row"] = count(700, (2, 1)).t()  # transposed, which of one row changes nothing
torch.save(state, os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch",
                               "pytorch_model.bin"))
