"""Muon on a CPU.

torch's Muon makes its matrices orthogonal in bfloat16. A processor without instructions for it imitates them: on one
thread with AVX2, a matrix of 256 x 704 takes 980 ms that way and 13 ms in float32. And in float32, a step is the same
on every processor, and in every way of sharing it among several, but for the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Muon(torch.optim.Muon):
    """torch's Muon, on a CPU in float32: its groups, state and steps."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        matrices = [p for group in self.param_groups for p in group["params"]]
        if any(not p.is_cpu for p in matrices):
            return super().step(closure)  # type: ignore[no-untyped-call]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._move(p, p.grad, group)
        return loss

    def _move(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        mean = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        update = gradient.lerp(mean, group["momentum"]) if group["nesterov"] else mean
        update = orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        longest, (n_out, n_in) = max(p.shape), p.shape
        by = 0.2 * math.sqrt(longest) if group["adjust_lr_fn"] == "match_rms_adamw" else math.sqrt(max(1, n_out / n_in))
        p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * by)


def orthogonal(x_OI: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """About the nearest matrix whose singular values are one, by a Newton-Schulz iteration of the fifth degree
    (Jordan 2024, Muon). In float32.
    """
    a, b, c = coefficients
    turned = x_OI.shape[0] > x_OI.shape[1]
    x = x_OI.float().T if turned else x_OI.float()
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.T if turned else x).to(x_OI.dtype)
