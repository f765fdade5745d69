"""A compiled model gives what the model gives (rung 7 of the ladder)."""

from __future__ import annotations

import pytest
import torch

from tests.model.small import small
from tests.oracles import close


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_eager_equals_compiled(without_shape_checks, backend):
    """A whole pass, a padded one, and a gradient."""
    model, tokens = small(windows=(3, None)), torch.randint(0, 50, (2, 9))
    present = torch.ones(2, 9, dtype=torch.bool)
    present[0, :4] = False
    torch.compiler.reset()
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        assert close(compiled(tokens), model(tokens))
        assert close(compiled(tokens, present=present), model(tokens, present=present))
    gradients = []
    for run in (compiled, model):
        model.zero_grad()
        run(tokens)[:, -1].logsumexp(-1).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(close(a, b) for a, b in zip(*gradients, strict=True))
