"""FlexAttention on a CPU, forward, compiled and as a check uncompiled, against the float64 reference.

In a process of its own: jaxtyping's import hook and torch.compile do not mix.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.ops.flex_worker import CASES, UNCOMPILED
from tests.oracles import TOLERANCE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.ops.flex_worker"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_compiled_flex_agrees(case: str, errors: dict[str, float]) -> None:
    assert errors[case] < TOLERANCE[CASES[case][-1]]


@pytest.mark.slow
@pytest.mark.parametrize("case", UNCOMPILED)
def test_uncompiled_flex_agrees(case: str, errors: dict[str, float]) -> None:
    assert errors[case] < TOLERANCE[torch.float32]
