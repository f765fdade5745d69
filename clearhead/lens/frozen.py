"""A norm with its scale frozen: what it did to one vector, as a linear map that parts of the vector go through."""

from __future__ import annotations

from torch import Tensor

from clearhead.nn.norm import Norm


class FrozenNorm:
    """norm(x) = map(x) + bias, with the size that divides taken from `x` and kept. In float64.

    The map is linear, so the parts of x go through it one by one, and what comes out sums to norm(x).
    """

    def __init__(self, norm: Norm, x: Tensor) -> None:
        """x: (..., D), what the norm read."""
        x = x.detach().double()
        self.centred = norm.config.kind == "layer"
        self.weight_D = norm.weight.detach().double() + norm.config.offset
        self.bias_D = None if norm.bias is None else norm.bias.detach().double()
        self.size = (self._centre(x).square().mean(-1, keepdim=True) + norm.config.eps).sqrt()

    def map(self, part: Tensor) -> Tensor:
        """What comes out of a part (..., D) of what went in."""
        return self._centre(part.double()) / self.size * self.weight_D

    def pull(self, direction: Tensor) -> Tensor:
        """The direction (..., D) to read before the norm, to see what `direction` reads after it: the transpose."""
        return self._centre(direction * self.weight_D / self.size)

    def constant(self, direction: Tensor) -> Tensor:
        """What `direction` (..., D) reads of the bias: (...)."""
        return direction.new_zeros(direction.shape[:-1]) if self.bias_D is None else direction @ self.bias_D

    def _centre(self, x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True) if self.centred else x
