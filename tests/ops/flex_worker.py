"""Runs FlexAttention in a process without shape checks, and prints the error of every case as JSON."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from clearhead.ops.attention import attention
from clearhead.ops.attention_flex import attention_flex, block_mask, run
from clearhead.ops.masks import BoundMask
from tests.ops.attention_cases import PREDICATES, Problem, bound, problem, rounded, solve
from tests.oracles import error

CASES = {
    "causal, float32": ("causal", (40, 40), "none", "plain", torch.float32),
    "all together, padded, bias, float32": ("all together", (40, 40), "padded", "relative bias", torch.float32),
    "present, padded, soft-cap, bfloat16": ("present", (40, 40), "padded", "softcap", torch.bfloat16),
    "window, one query, alibi, float16": ("window", (1, 40), "none", "alibi", torch.float16),
}
UNCOMPILED = {f"uncompiled, {name}": name for name in PREDICATES}
"""As a check of the adapter, at no cost of compiling: every predicate, padded, with a bias and a soft-cap."""


def uncompiled(q: Tensor, k: Tensor, v: Tensor, mask: BoundMask, *, sinks_H: None, **options: Any) -> Tensor:
    return run(flex_attention, block_mask(mask, compiled=False), q, k, v, mask, **options)


def check(function: Any, given: Problem, dtype: torch.dtype) -> float:
    with torch.no_grad():
        (found,) = solve(function, given, dtype, backward=False)
        (truth,) = solve(attention, rounded(given, dtype), torch.float64, backward=False)
    return error(found, truth)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    errors = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is slow uncompiled
        for name, predicate in UNCOMPILED.items():
            given = replace(problem(bound(predicate, 9, 12, "padded"), with_="relative bias"), softcap=1.5)
            errors[name] = check(uncompiled, given, torch.float32)
    for name, (predicate, shape, padding, kind, dtype) in CASES.items():
        errors[name] = check(attention_flex, problem(bound(predicate, *shape, padding), with_=kind), dtype)
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
