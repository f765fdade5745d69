"""Tiny sounds: words that are tones, in the voices of speakers who differ in their overtones."""

from __future__ import annotations

import wave
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.training.config import SpectrogramConfig, TrainConfig
from clearhead.training.run import config_of

RATE = 16000
TONES = {"low": 300, "mid": 900, "high": 2700}
HEARD = SpectrogramConfig(hop=400, seconds=1)
"""Forty frames, and so twenty tokens."""
N_MELS = 16
BLOCKS = [f"model.config.{part}.blocks" for part in ("encoder", "decoder")]
TINY = (
    "model.config.d_model=16",
    f"model.config.encoder.embed.front.n_mels={N_MELS}",
    "model.config.encoder.embed.positions.n=20",
    *(
        f"{blocks}.*.{part}.op.{one}"
        for blocks in BLOCKS
        for part in ("mixer", "cross")
        if part == "mixer" or "decoder" in blocks
        for one in ("n_kv_heads=2", "n_heads=2", "d_head=8")
    ),
    *(f"{blocks}.*.ffn.op.d_ff=32" for blocks in BLOCKS),
    "batch.rows=8",
    "batch.micro_rows=3",
    "every.log=1",
    "every.evaluate=0",
    "every.save=0",
    "data.augment.shift=0.05",
    "data.augment.bands=2",
    "data.augment.frames=3",
    "data.vocab_size=40",
    "data.held_out=0.3",
    "optim.name=adamw",
    "optim.lr=3e-3",
    "schedule.warmup=2",
)


def write(path: Path, samples_N: NDArray[Any], rate: int = RATE) -> Path:
    """A WAV file of samples from -1 to 1."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.asarray(samples_N) * 32767).astype("<i2").tobytes())
    return path


def spoken(text: str, speaker: int, rate: int = RATE) -> NDArray[Any]:
    """A fifth of a second a word."""
    time = np.arange(rate // 5) / rate
    words = [
        0.5 * np.sin(2 * np.pi * TONES[word] * time) + 0.1 * np.sin(2 * np.pi * TONES[word] * (speaker + 2) * time)
        for word in text.split()
    ]
    return np.concatenate(words)


def folder(path: Path, n: int = 40, speakers: int = 5, seed: int = 7) -> Path:
    """So many sounds of one to three words, and their table."""
    random = np.random.default_rng(seed)
    path.mkdir(parents=True)
    rows = ["file\ttext\tspeaker"]
    for i in range(n):
        text, speaker = " ".join(random.choice([*TONES], random.integers(1, 4))), int(random.integers(speakers))
        write(path / f"{i:03}.wav", spoken(text, speaker))
        rows.append(f"{i:03}.wav\t{text}\tspeaker {speaker}")
    (path / "transcripts.tsv").write_text("\n".join(rows) + "\n")
    return path


def tiny_speech(path: Path, *settings: str, steps: int = 6) -> TrainConfig:
    """A run of a Whisper of nothing, with changed sounds and micro-batches."""
    config = config_of("speech_numbers", (*TINY, f"run.steps={steps}", *settings))
    assert isinstance(config, TrainConfig)
    return replace(config, data=replace(config.data, path=str(path), spectrogram=HEARD))
