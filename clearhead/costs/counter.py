"""The floating-point operations of a run: those of products of matrices, and a multiplication and its addition are two.

Counted by torch's own counter. A mask saves nothing there, as is usual where utilisation is compared (Chowdhery 2022,
PaLM, appendix B): a causal attention counts as a full one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

Shape = tuple[int, ...]


def count_flops(run: Callable[[], object]) -> int:
    """How many operations `run` takes."""
    with FlopCounterMode(display=False, custom_mapping=_CPU_ATTENTION) as counter:
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


# torch's counter knows the fused kernels of GPUs, and not that of the CPU.
_CPU_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
