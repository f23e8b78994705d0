"""Lets the transformers library build in a trace what it builds in an eager run; the library itself is not imported."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from torch import nn


# Experts without a loop over those that are hit: each one computes all tokens.


def _switch_experts(experts: Any, hidden_states: Any, selected_experts: Any, routing_weights: Any) -> Any:
    shares = selected_experts[:, 0] * routing_weights
    return sum(expert(hidden_states) * shares[:, i, None] for i, expert in enumerate(experts.values()))


def _share(expert: int, indices: Any, weights: Any) -> Any:
    return ((indices == expert) * weights).sum(1, keepdim=True)


def _nllb_experts(experts: Any, hidden_states: Any, router_mask: Any, router_probs: Any) -> Any:
    drop, probability = experts.token_dropout, experts.moe_token_dropout
    made = (
        experts[f"expert_{i}"](hidden_states) * _share(i, router_mask, router_probs) for i in range(experts.num_experts)
    )
    return sum(drop(each) if experts.training else each * (1 - probability) for each in made)


def _dbrx_experts(experts: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    mlp, tokens = experts.mlp, hidden_states.reshape(-1, experts.hidden_size)
    shape = experts.num_experts, experts.ffn_hidden_size, experts.hidden_size
    parts = zip(mlp.w1.view(shape), mlp.v1.view(shape), mlp.w2.view(shape), strict=True)
    made = (mlp(tokens, *part) * _share(i, top_k_index, top_k_weights) for i, part in enumerate(parts))
    return sum(made).view(hidden_states.shape)


def _longcat_experts(experts: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    def computed(i: int) -> Any:
        gate, up = (hidden_states @ experts.gate_up_proj[i].mT).chunk(2, dim=-1)
        return (experts.act_fn(gate) * up) @ experts.down_proj[i].mT

    made = (computed(i) if i < experts.num_routed_experts else hidden_states for i in range(experts.total_experts))
    return sum(each * _share(i, top_k_index, top_k_weights) for i, each in enumerate(made))


_EXPERTS = {
    "dbrx": ("DbrxExperts", _dbrx_experts),
    "longcat_flash": ("LongcatFlashExperts", _longcat_experts),
    "nllb_moe": ("NllbMoeExperts", _nllb_experts),
    "switch_transformers": ("SwitchTransformersExperts", _switch_experts),
}


@contextlib.contextmanager
def traced_by_rules_of_eager(model: nn.Module, inputs: Container[str]) -> Iterator[None]:
    """Exports a transformers model without key-value cache and, for a batch without padding, without a causal mask.

    A traced model would get a materialised causal mask, because the library can then not see that nothing is padded
    and that positions count up. Here that is known, so its own rule for eager runs holds: no mask, and
    `scaled_dot_product_attention(is_causal=True)`. Encoders that cannot do without a mask get the one of an eager run.
    Experts that are chosen by a loop over values all compute, and the unchosen ones have no share in the result.
    """
    configs = [getattr(m, "config", None) for m in model.modules()]
    changes: list[tuple[Any, str, Any]] = [(c, "use_cache", False) for c in configs if getattr(c, "use_cache", False)]

    def is_compiling() -> bool:
        return getattr(sys._getframe(1).f_locals.get("self"), "is_decoder", True)  # of an encoder, the caller, not

    encoders = {type(m).__module__ for m in model.modules() if getattr(m, "is_decoder", None) is False}
    modelings = [m for n in encoders if hasattr(m := sys.modules.get(n), "is_torchdynamo_compiling")]
    changes += [(m, "is_torchdynamo_compiling", is_compiling) for m in modelings]
    for name, (kind, forward) in _EXPERTS.items():
        modeling = sys.modules.get(f"transformers.models.{name}.modeling_{name}")
        if hasattr(modeling, kind):
            changes.append((getattr(modeling, kind), "forward", forward))
    with contextlib.ExitStack() as stack:
        is_padded = "attention_mask" in inputs or "position_ids" in inputs
        masking: Any = None if is_padded else sys.modules.get("transformers.masking_utils")
        if hasattr(masking, "ALL_MASK_ATTENTION_FUNCTIONS") and hasattr(masking, "find_packed_sequence_indices"):
            interface = masking.ALL_MASK_ATTENTION_FUNCTIONS
            sdpa_mask = interface["sdpa"]

            def causal_mask(*args: Any, **kwargs: Any) -> Any:
                length, local = kwargs.get("kv_length"), kwargs.get("local_size")
                is_plain = kwargs.get("allow_is_causal_skip", False) and kwargs.get("attention_mask") is None
                is_near = local is None or (isinstance(length, int) and length < local)
                return None if is_plain and is_near else sdpa_mask(*args, **kwargs)

            stack.callback(interface.__setitem__, "sdpa", sdpa_mask)
            interface["sdpa"] = causal_mask
            changes.append((masking, "find_packed_sequence_indices", lambda position_ids: None))
        for owner, name, value in changes:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield
