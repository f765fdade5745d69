"""Whether torch follows what is computed, so that nothing may be worked out behind its back."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def is_watched() -> bool:
    """Whether a transform of functions, a trace, a forward-mode derivative or a mode that is told of every operation
    (counters, made-up tensors, graphs) is under way.
    """
    return (
        bool(torch._C._are_functorch_transforms_active())
        or torch._C._get_tracing_state() is not None
        or forward_ad._current_level >= 0
        or torch._C._len_torch_dispatch_stack() > 0
    )
