"""A feed-forward made of many, a few of which work on each token (Shazeer 2017, mixture of experts)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import ExpertsConfig, RouterConfig
from clearhead.errors import ClearheadError
from clearhead.forward import Pass
from clearhead.nn.feed_forward import FeedForward, joined
from clearhead.ops.experts import ExpertWeights, experts_grouped
from clearhead.ops.routing import choose, weigh


class Router(nn.Module):
    """One logit an expert, in float32. `correction` is learned by counting, not by gradients."""

    def __init__(self, d_model: int, n_experts: int, config: RouterConfig) -> None:
        super().__init__()
        self.config = config
        self.wide = ("weight", "correction") if config.score == "sigmoid" else ()
        """Parameters that keep the precision a file has them in: a rounded one would choose other experts."""
        self.weight = nn.Parameter(torch.empty(n_experts, d_model))
        self.bias = nn.Parameter(torch.zeros(n_experts)) if config.bias else None
        self.correction = None
        if config.correction:
            self.correction = nn.Parameter(torch.zeros(n_experts), requires_grad=False)

    def forward(self, x_BTD: Float[Tensor, "B T d"]) -> Float[Tensor, "B T e"]:
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        if self.config.score == "sigmoid":
            # DeepSeek-V3 takes this product itself in float32; the others round it like any.
            bias = None if self.bias is None else self.bias.to(wide)
            return F.linear(x_BTD.to(wide), self.weight.to(wide), bias)
        return F.linear(x_BTD, self.weight, self.bias).to(wide)


class Experts(nn.Module):
    """out = sum over the chosen of weight * expert(x), and shared(x) where there is one, on the same x."""

    sites: ClassVar[dict[str, str]] = taps.EXPERTS

    def __init__(self, d_model: int, config: ExpertsConfig) -> None:
        super().__init__()
        c = self.config = config
        self.path = ""
        n_open = c.n_experts // c.router.n_groups * c.router.n_chosen_groups
        if c.n_chosen > n_open:
            raise ClearheadError(f"a token can't choose {c.n_chosen} of the {n_open} experts of its groups")
        n, f, bias = c.n_experts, c.expert.d_ff, c.expert.bias
        self.router = Router(d_model, n, c.router)
        self.gate_proj = nn.Parameter(torch.empty(n, f, d_model)) if c.expert.gated else None
        self.gate_bias = nn.Parameter(torch.zeros(n, f)) if c.expert.gated and bias else None
        self.up_proj = nn.Parameter(torch.empty(n, f, d_model))
        self.up_bias = nn.Parameter(torch.zeros(n, f)) if bias else None
        self.down_proj = nn.Parameter(torch.empty(n, d_model, f))
        self.down_bias = nn.Parameter(torch.zeros(n, d_model)) if bias else None
        self.shared = FeedForward(d_model, c.shared) if c.shared is not None else None
        self.join = joined(c.expert.activation)

    def forward(self, x_BTD: Float[Tensor, "B T d"], p: Pass) -> Float[Tensor, "B T d"]:
        c, r = self.config, self.config.router
        logits_BTE = p.tap(self.path, "router_logits", self.router(x_BTD))
        chosen_BTC = choose(
            logits_BTE,
            c.n_chosen,
            r.score,
            correction_E=self.router.correction,
            n_groups=r.n_groups,
            n_chosen_groups=r.n_chosen_groups,
        )
        chosen_BTC = p.tap(self.path, "chosen", chosen_BTC)
        weights_BTC = weigh(logits_BTE, chosen_BTC, r.score, renormalise=r.renormalise, scale=r.scale)
        out_ND = experts_grouped(
            x_BTD.flatten(0, 1), chosen_BTC.flatten(0, 1), weights_BTC.flatten(0, 1), self.weights(), self._inner
        )
        out_BTD = out_ND.view(x_BTD.shape)
        if self.shared is not None:
            out_BTD = out_BTD + p.tap(self.shared.path, "out", self.shared(x_BTD, p))
        return out_BTD

    def weights(self) -> ExpertWeights:
        """All experts' matrices."""
        return ExpertWeights(
            gate=self.gate_proj,
            gate_bias=self.gate_bias,
            up=self.up_proj,
            up_bias=self.up_bias,
            down=self.down_proj,
            down_bias=self.down_bias,
        )

    def _inner(self, gate_NF: Tensor | None, up_NF: Tensor) -> Tensor:
        post_NF = self.join(gate_NF, up_NF)
        return F.dropout(post_NF, self.config.expert.dropout) if self.training else post_NF
