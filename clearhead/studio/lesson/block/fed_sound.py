"""Chapter 6: the same block fed with a sound (S47)."""

from __future__ import annotations

import shutil
import tempfile
from functools import lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.generation import generate
from clearhead.generation.result import Result
from clearhead.inputs.audio import AudioProcessor, read_sound
from clearhead.lens import Seen, look
from clearhead.studio.context import Studio
from clearhead.studio.lesson.block.fed import lengths_of, told_of
from clearhead.studio.operations import Answer, operation
from clearhead.training.corpora.spoken_numbers import Clip, speak, words

SOUNDS = files("clearhead").joinpath("assets", "sounds")
SHIPPED_SOUNDS = (42, 365, 2017)


def _speaker() -> str | None:
    """The program that speaks a number, where it and what it takes are installed."""
    return shutil.which("espeak-ng") if find_spec("num2words") is not None else None


@lru_cache(maxsize=32)
def _spoken(number: int) -> tuple[NDArray[np.float32], bool]:
    """The samples of a spoken number, as many a second as its file says, and whether they were made just now.

    Raises:
        UsageError: it is none that is shipped, and nothing here can speak.
    """
    if number in SHIPPED_SOUNDS:
        samples, _ = read_sound(str(SOUNDS.joinpath(f"{number}.wav")))
        return samples[:, 0], False
    program = _speaker()
    if program is None:
        raise UsageError(
            f"{number} is not among the shipped sounds ({', '.join(map(str, SHIPPED_SOUNDS))}), and nothing here can "
            'speak it. Run: apt-get install espeak-ng, and pip install "clearhead[train]"'
        )
    with tempfile.TemporaryDirectory() as folder:
        speak(program, [_clip(number)], Path(folder), lambda said: None)
        samples, _ = read_sound(Path(folder) / "0000.wav")
    return samples[:, 0], True


def _clip(number: int) -> Clip:
    return Clip(number=number, speaker="m3", accent="en-gb", speed=200, pitch=50)


@lru_cache(maxsize=32)
def _heard(studio: Studio, number: int) -> tuple[Tensor, Seen, str, int]:
    """The spectrogram of a spoken number, what the encoder made of it, what was written, and how many samples."""
    samples, _ = _spoken(number)
    with studio.models.lock("clear-speech"):
        model = studio.models.get("clear-speech")
        frames_1MF = AudioProcessor.from_folder(model.origin.where)(samples)
        result = generate(model, frames_1MF[0], max_new_tokens=32, temperature=0)
        assert isinstance(result, Result)
        beginning = torch.tensor([[model.config.ids.decoder_start]])
        seen = look(
            model,
            {"tokens": beginning, "frames": frames_1MF},
            "encoder.layers.*.resid_pre",
            "encoder.layers.*.resid_post",
        )
    return frames_1MF[0], seen, result.text, len(samples)


@operation("block.sound")
def sound(studio: Studio, *, number: Annotated[int, Field(ge=0, le=9999)] = 365) -> Answer:
    """clear-speech hears a spoken number in frames and writes it down.

    Raises:
        UsageError: the number is none that is shipped, and nothing on this machine can speak it.
    """
    frames_MF, seen, written, n_samples = _heard(studio, number)
    samples, made_now = _spoken(number)
    model = studio.models.get("clear-speech")
    assert model.config.encoder is not None and model.config.decoder is not None
    processor = AudioProcessor.from_folder(model.origin.where)
    lengths = lengths_of(seen, "encoder.layers", len(model.config.encoder.blocks))
    n_tokens = lengths.shape[1]
    made = (
        f"The sound becomes a spectrogram of {frames_MF.shape[0]} bands and {frames_MF.shape[1]} frames; two "
        f"convolutions make {n_tokens} vectors of it, one for each two frames."
    )
    said = words(number) if find_spec("num2words") is not None else ""
    apart = processor.hop / processor.rate * frames_MF.shape[1] / n_tokens
    moments = [f"{apart * i:.2f} s" for i in range(n_tokens)]
    return Answer(
        data={
            **told_of(model, model.config.encoder, "encoder.layers", moments, made),
            "input": "sound",
            "model": "clear-speech",
            "number": number,
            "written": written,
            "said": said,
            "right": written == said,
            "seconds": n_samples / processor.rate,
            "rate": processor.rate,
            "hears": processor.seconds,
            "decoder_layers": len(model.config.decoder.blocks),
            "shipped": list(SHIPPED_SOUNDS),
            "can_speak": _speaker() is not None,
            "made_now": made_now,
            "mean_before": float(lengths[0].mean()),
            "mean_after": float(lengths[-1].mean()),
        },
        arrays={
            "frames": frames_MF,
            # As it is drawn: low tones below, silence as nothing.
            "spectrogram": frames_MF.flip(0) - frames_MF.min(),
            "lengths": lengths,
            "samples": samples,
        },
        python=(_SHIPPED_SOUND if number in SHIPPED_SOUNDS else _SPOKEN).format(number=number),
        printed=(float(lengths[0].mean()), float(lengths[-1].mean())),
    )


_SOUND = """\
model = clearhead.load("clear-speech")
frames = AudioProcessor.from_folder(model.origin.where)(samples)
print(clearhead.generate(model, frames[0], max_new_tokens=32, temperature=0).text)
start = torch.tensor([[model.config.ids.decoder_start]])
names = ["encoder.layers.0.resid_pre", "encoder.layers.2.resid_post"]
seen = clearhead.look(model, {{"tokens": start, "frames": frames}}, *names)
for name in names:
    print("mean length of a vector:", float(seen[name][0].norm(dim=-1).mean()))
"""
_SHIPPED_SOUND = (
    """\
from importlib.resources import files

import torch

import clearhead
from clearhead.inputs.audio import AudioProcessor, read_sound

samples, _ = read_sound(str(files("clearhead").joinpath("assets", "sounds", "{number}.wav")))
"""
    + _SOUND
)
_SPOKEN = (
    """\
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import clearhead
from clearhead.inputs.audio import AudioProcessor, read_sound
from clearhead.training.corpora.spoken_numbers import Clip, speak

clip = Clip(number={number}, speaker="m3", accent="en-gb", speed=200, pitch=50)
with TemporaryDirectory() as folder:
    speak(shutil.which("espeak-ng"), [clip], Path(folder), lambda said: None)
    samples, _ = read_sound(Path(folder) / "0000.wav")
"""
    + _SOUND
)
