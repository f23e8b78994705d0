"""Trains the GPT with plain PyTorch, and compares with a run of `trireme train`; nothing of Trireme is used here.

    python examples/gpt/parity.py --text T --batch B --metrics M.jsonl --weights W.safetensors

Both runs begin with the weights of seed 0 in float64 and read the samples in their order. Fails where a loss, or a
weight beside the largest of its tensor, differs by more than 1e-9.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from model import GPT
from safetensors.torch import load_file

TOLERANCE = 1e-9
LENGTH = 64

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--text", type=Path, required=True)
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--metrics", type=Path, required=True)
parser.add_argument("--weights", type=Path, required=True)
options = parser.parse_args()
trained = [json.loads(line)["loss"] for line in options.metrics.read_text().splitlines()]

# --- plain PyTorch -----------------------------------------------------------------------------------------------
torch.manual_seed(0)
model = GPT(length=LENGTH).double()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
count = len(trained) * options.batch * LENGTH
text = torch.frombuffer(bytearray(options.text.read_bytes()[:count]), dtype=torch.uint8).long()
losses = []
for idx in text.view(len(trained), options.batch, LENGTH):
    logits = model(idx)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), idx[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

# --- the comparison ----------------------------------------------------------------------------------------------
print("step        PyTorch              Trireme       difference")
for step, (ours, theirs) in enumerate(zip(trained, losses, strict=True), 1):
    print(f"{step:4}  {theirs:.15f}  {ours:.15f}  {abs(ours - theirs) / theirs:10.1e}")
of_losses = max(abs(ours - theirs) / theirs for ours, theirs in zip(trained, losses, strict=True))

saved = load_file(options.weights)
model_weights = model.state_dict()
if saved.keys() != model_weights.keys():
    sys.exit(f"the names of the weights differ: {sorted(saved.keys() ^ model_weights.keys())}")
of_weights = max(
    ((saved[name] - weight).abs().max() / weight.abs().max()).item() for name, weight in model_weights.items()
)
print(f"largest relative difference: losses {of_losses:.1e}, weights {of_weights:.1e} (allowed: {TOLERANCE:.0e})")
if not (of_losses <= TOLERANCE and of_weights <= TOLERANCE):
    sys.exit("the runs differ")
