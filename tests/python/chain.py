"""A model of many small layers, the layouts it is trained in, and the comparison with PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from own_model import compare, normal
from torch import nn

WIDTH = 6
NUM_ROWS = 24
SCHEDULES = ["gpipe", "1f1b"]
LAYOUTS = [(2, 1, 3), (3, 1, 2), (2, 2, 2)]


class Chain(nn.Module):
    """Nine layers: as many stages as eight."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(9))

    @staticmethod
    def rows(generator):
        return {"x": normal(generator, NUM_ROWS, WIDTH), "y": normal(generator, NUM_ROWS, WIDTH)}

    def forward(self, x, y):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return F.mse_loss(x, y)


def check(model, layout, *options, schedule="1f1b", **run):
    compare(model.expected(**run), model.train(*options, layout=layout, schedule=schedule, **run))
