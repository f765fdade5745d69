"""The floating-point operations of a run: those of products of matrices, and a multiplication and its addition are two.

Counted by torch's own counter. A mask saves nothing there, as is usual where utilisation is compared (Chowdhery 2022,
PaLM, appendix B): a causal attention counts as a full one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

Shape = tuple[int, ...]


def count_flops(run: Callable[[], object]) -> int:
    """How many operations `run` takes."""
    with FlopCounterMode(display=False, custom_mapping=_ON_CPU) as counter:
        run()
    return int(counter.get_total_flops())


def _attention(q_BHTK: Shape, k_BGSK: Shape, v_BGSV: Shape, *rest: Any, **options: Any) -> int:
    """Scores, and the mix of the values."""
    n_rows, n_heads, n_queries, width = q_BHTK
    return 2 * n_rows * n_heads * n_queries * k_BGSK[2] * (width + v_BGSV[3])


def _attention_backward(
    gradient: Shape, q_BHTK: Shape, k_BGSK: Shape, v_BGSV: Shape, *rest: Any, **options: Any
) -> int:
    """The scores again, and the gradients of pattern, values, queries and keys."""
    n_rows, n_heads, n_queries, width = q_BHTK
    return 2 * n_rows * n_heads * n_queries * k_BGSK[2] * (3 * width + 2 * v_BGSV[3])


def _lstm(x_TBI: Shape, weight_ih: Shape, weight_hh: Shape, *rest: Any, **options: Any) -> int:
    """The input's product, and the hidden vector's."""
    n_steps, n_rows, _ = x_TBI
    return 2 * n_steps * n_rows * (prod(weight_ih) + prod(weight_hh))


def _lstm_backward(*shapes: Any, **options: Any) -> int:
    """A product for each factor."""
    return 2 * _lstm(*shapes)


# torch's counter knows the fused kernels of GPUs, and not those of the CPU.
_ON_CPU = {
    torch.ops.aten.mkldnn_rnn_layer: _lstm,
    torch.ops.aten.mkldnn_rnn_layer_backward: _lstm_backward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
