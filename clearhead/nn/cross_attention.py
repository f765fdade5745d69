"""The part of a decoder's block that looks at what an encoder made of the source."""

from __future__ import annotations

from typing import cast

from jaxtyping import Float
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.forward import Pass
from clearhead.layer_state import CrossState, LayerState
from clearhead.nn.attention import Attention
from clearhead.ops.masks import Positions


class CrossAttention(Attention):
    """Queries from the text, keys and values from the source (Vaswani 2017, section 3.2.3).

    The source stays as it is while the text grows, so with a state its keys and values are made once.
    """

    def new_state(self, capacity: int | None = None) -> LayerState:
        return CrossState()

    def forward(self, x_BTD: Float[Tensor, "B T d"], p: Pass) -> Float[Tensor, "B T d"]:
        q_BHTK = self._heads(self.q_proj(x_BTD), self.q_norm)
        q_BHTK = p.tap(self.path, "q_raw", q_BHTK)
        k_BGSK, v_BGSK, keys = self._source(p)
        return self._mixed(q_BHTK, k_BGSK, v_BGSK, p.source_mask(keys), p)

    def _source(self, p: Pass) -> tuple[Tensor, Tensor, Positions]:
        """Keys, values and positions of the source."""
        memory = cast(CrossState, p.state.at(self.path)) if p.state is not None else CrossState()
        if p.source is not None:
            k_BGSK = p.tap(self.path, "k_raw", self._heads(self.k_proj(p.source.x_BSD), self.k_norm))
            v_BGSK = self._heads(self.v_proj(p.source.x_BSD), None)
            memory.fill(k_BGSK, v_BGSK, p.source.positions)
        if memory.kept is None:
            raise ClearheadError("this model looks at a source, and none was given: pass source= (or frames=, pixels=)")
        return memory.kept
