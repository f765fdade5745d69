"""What every test runs under: one thread, no network, and shapes checked against their annotations."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ[name] = "1"

if os.environ.get("CLEARHEAD_SHAPE_CHECKS", "1") != "0":
    from jaxtyping import install_import_hook

    # Before anything of clearhead is imported: the hook works on modules as they load.
    install_import_hook(["clearhead.ops", "clearhead.nn", "clearhead.model"], "beartype.beartype")

from collections.abc import Iterator

import jaxtyping
import pytest
import torch

torch.set_num_threads(1)

pytest_plugins = ["tests.families.figures"]


@pytest.fixture
def without_shape_checks() -> Iterator[None]:
    """For tests that compile: jaxtyping's checks and torch.compile do not mix."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)
