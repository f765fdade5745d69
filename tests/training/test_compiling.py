"""The cases of `compiling_cases.py`, in a process of their own: jaxtyping's hook and torch.compile do not mix."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["not slow", "slow"])
def test_compiled_blocks(which: str) -> None:
    """`slow`: with the compiler that runs are compiled by, and not only the graphs that it is given."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/training/compiling_cases.py", "-m", which],
        cwd=ROOT,
        env={**os.environ, "CLEARHEAD_SHAPE_CHECKS": "0", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout
