"""Models of the benchmarks: ordinary PyTorch, with a batch of inputs and targets for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (
            y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """The toy GPT of the pipeline comparisons: width 128, 6 blocks, untied head, which may tell fewer words apart."""

    def __init__(
        self,
        width: int = 128,
        blocks: int = 6,
        heads: int = 4,
        length: int = 64,
        vocabulary: int = 4096,
        outputs: int | None = None,
    ) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, outputs or vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


class Part(nn.Module):
    """Blocks `first` to `end` of the model, with what comes before the first of all and after the last."""

    def __init__(self, model: Gpt, first: int, end: int) -> None:
        super().__init__()
        if first == 0:
            self.wte, self.wpe = model.wte, model.wpe
        self.blocks = model.blocks[first : min(end, len(model.blocks))]
        if end > len(model.blocks):
            self.ln_f, self.head = model.ln_f, model.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if hasattr(self, "wte"):
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x)) if hasattr(self, "head") else x


def parts_of(model: Gpt, cuts: list[int]) -> list[Part]:
    """Cut before these blocks; the head counts as one."""
    places = [0, *cuts, len(model.blocks) + 1]
    return [Part(model, first, end) for first, end in itertools.pairwise(places)]


class BasicBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


def resnet() -> nn.Module:
    stem = [nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(
        *stem, *(BasicBlock(32) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )


def mlp() -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(32, 32)]
    for _ in range(15):
        layers += [nn.ReLU(), nn.Linear(32, 32)]
    return nn.Sequential(*layers)


class Logits(nn.Module):
    """A Hugging Face causal model as a function of tokens to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, use_cache=False).logits


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        use_cache=False,
    )
    return Logits(LlamaForCausalLM(config))


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


@dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    data: Callable[[int], tuple[torch.Tensor, torch.Tensor]]  # rows -> inputs, targets
    batch: int


def tokens(vocabulary: int) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    return lambda rows: (torch.randint(vocabulary, (rows, 64)), torch.randint(vocabulary, (rows, 64)))


CASES = {
    "gpt": Case(Gpt, token_loss, tokens(4096), 16),
    "resnet": Case(resnet, F.cross_entropy, lambda n: (torch.randn(n, 3, 32, 32), torch.randint(10, (n,))), 16),
    "mlp": Case(mlp, F.mse_loss, lambda n: (torch.randn(n, 32), torch.randn(n, 32)), 32),
    "llama": Case(llama, token_loss, tokens(2048), 8),
}
