"""A small decoder that writes Python, from the standard library's source: data that every machine with Python has."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from clearhead.training.config import (
    BatchConfig,
    DataConfig,
    DecoderConfig,
    EveryConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from clearhead.training.data.documents import Corpus

INSTALLED = ("site-packages/*", "dist-packages/*")
"""What lies in the standard library's folder and is no part of it."""


def gpt_stdlib() -> TrainConfig:
    """2.6 million parameters, 1,000 steps of 2,048 tokens: in ten minutes, a larger model reads too little to be worth
    its size.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    return TrainConfig(
        model=DecoderConfig(family="qwen3", d_model=192, n_layers=4, n_heads=4, n_kv_heads=4, d_ff=512, qk_norm=True),
        data=DataConfig(
            corpus=Corpus(path=str(folder), pattern="*.py", exclude=(*INSTALLED, *other_encodings(folder))),
            vocab_size=4096,
            held_out=0.05,
        ),
        batch=BatchConfig(rows=4, length=512, pack="plain"),
        optim=OptimConfig(name="muon", lr=6e-3, weight_decay=0.1, clip=1.0),
        schedule=ScheduleConfig(kind="linear", warmup=20, floor=0.02),
        run=RunConfig(steps=1000),
        every=EveryConfig(log=10, evaluate=200, save=100),
    )


def other_encodings(folder: Path) -> tuple[str, ...]:
    """The files, by their path in the folder, that are no UTF-8: the library has some to test with."""
    found = []
    for path in folder.rglob("*.py"):
        name = path.relative_to(folder).as_posix()
        if name.startswith(("site-packages/", "dist-packages/")):
            continue
        try:
            path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            found.append(name)
    return tuple(sorted(found))
