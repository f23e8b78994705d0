"""Experts that transformers runs in a loop over values give in a trace what that loop gives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from trireme.hugging_face import traced_by_rules_of_eager

TOKENS, WIDTH, EXPERTS = 7, 6, 4


def _switch():
    from transformers import SwitchTransformersConfig
    from transformers.models.switch_transformers.modeling_switch_transformers import SwitchTransformersExperts

    config = SwitchTransformersConfig(d_model=WIDTH, d_ff=5, num_experts=EXPERTS)
    chosen = torch.randint(EXPERTS, (TOKENS, 1))
    return SwitchTransformersExperts(config), F.one_hot(chosen, EXPERTS), torch.rand(TOKENS, 1)


def _nllb_moe():
    """Its router passes the mask of the first choice in the place of indices."""
    from transformers import NllbMoeConfig
    from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeExperts

    config = NllbMoeConfig(d_model=WIDTH, num_experts=EXPERTS, moe_token_dropout=0.3)
    mask = F.one_hot(torch.randint(EXPERTS, (TOKENS,)), EXPERTS)
    return NllbMoeExperts(config, ffn_dim=5), mask, torch.rand(TOKENS, EXPERTS)


def _dbrx():
    from transformers.models.dbrx.configuration_dbrx import DbrxFFNConfig
    from transformers.models.dbrx.modeling_dbrx import DbrxExperts

    config = DbrxFFNConfig(hidden_size=WIDTH, ffn_hidden_size=5, moe_num_experts=EXPERTS, moe_top_k=2)
    weights, chosen = torch.rand(TOKENS, EXPERTS).topk(2)
    return DbrxExperts(config), chosen, weights


def _longcat_flash():
    """Its last expert gives each token as it is."""
    from transformers import LongcatFlashConfig
    from transformers.models.longcat_flash.modeling_longcat_flash import LongcatFlashExperts

    config = LongcatFlashConfig(hidden_size=WIDTH, n_routed_experts=3, zero_expert_num=1, expert_ffn_hidden_size=5)
    weights, chosen = torch.rand(TOKENS, EXPERTS).topk(2)
    return LongcatFlashExperts(config), chosen, weights


@pytest.mark.parametrize("build", [_switch, _nllb_moe, _dbrx, _longcat_flash])
def test_experts_give_what_their_own_loop_gives(build):
    torch.manual_seed(5)
    experts, chosen, weights = build()
    for parameter in experts.parameters():
        nn.init.normal_(parameter)
    experts, weights = experts.double().eval(), weights.double()
    tokens = torch.randn(TOKENS, WIDTH, dtype=torch.float64)
    own = type(experts).forward
    wanted = experts(tokens, chosen, weights)
    with traced_by_rules_of_eager(experts, []):
        assert type(experts).forward is not own
        found = experts(tokens, chosen, weights)
    assert type(experts).forward is own
    torch.testing.assert_close(found.view(tokens.shape), wanted.view(tokens.shape), rtol=1e-12, atol=1e-12)
