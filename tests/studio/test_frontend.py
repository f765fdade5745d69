"""The pages' own tests and the check of their types, where this machine has a Node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FRONTEND = Path(__file__).parents[2] / "frontend"


@pytest.mark.slow
@pytest.mark.parametrize("script", ["test", "check"])
def test_of_the_pages(script: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no Node on this machine: the pages were built with a wheel's")
    done = subprocess.run([npm, "run", script], cwd=FRONTEND, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
