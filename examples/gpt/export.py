"""Exports the GPT for `trireme train`: `python examples/gpt/export.py gpt.pt2 [--double]`."""

from __future__ import annotations

import argparse

import torch
from model import GPT, VOCABULARY

import trireme

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("archive")
parser.add_argument("--double", action="store_true", help="weights in float64")
parser.add_argument("--length", type=int, default=64, help="bytes a sample")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

torch.manual_seed(options.seed)
model = GPT(length=options.length)
if options.double:
    model.double()
example = torch.randint(VOCABULARY, (2, options.length))
trireme.export(model, example, options.archive, loss="causal-lm")

count = sum(p.numel() for p in model.parameters())
print(f"{options.archive}: {count} parameters, {options.length} bytes a sample")
