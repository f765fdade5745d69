"""What several products read is rounded once, and the numbers are those of rounding it for each."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.config import FeedForwardConfig
from clearhead.forward import Pass, Places
from clearhead.nn import feed_forward, linear
from clearhead.ops.masks import Positions


def test_a_gate_and_its_values_share_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    part = feed_forward.FeedForward(16, FeedForwardConfig(d_ff=24, activation="silu"))
    for parameter in part.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.2)
    positions = Positions(span=(0, 5))
    p = Pass(positions=positions, places=Places(positions, 5, torch.device("cpu")))
    x_BTD = torch.randn(2, 5, 16)
    read: list[Tensor] = []
    with torch.autocast("cpu", torch.bfloat16):
        for projection in (part.gate_proj, part.up_proj):
            assert projection is not None
            projection.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
        once = part(x_BTD, p)
        assert read[0] is read[1] and read[0].dtype == torch.bfloat16
        monkeypatch.setattr(linear, "rounded_once", lambda x: x)
        assert torch.equal(part(x_BTD, p), once)
    assert part(x_BTD, p).dtype == torch.float32
