"""Sound as a model reads it: thirty seconds of log-mel spectrogram."""

from __future__ import annotations

import importlib
import importlib.util
import wave
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.inputs.mel import log_mel, mel_filters
from clearhead.inputs.tokenizer_folder import read_json

Sound = str | Path | NDArray[Any] | Tensor | Sequence[float]

READ = {
    "feature_size": "n_mels",
    "sampling_rate": "rate",
    "n_fft": "n_fft",
    "hop_length": "hop",
    "chunk_length": "seconds",
}
# What follows from the others, or changes nothing; and what would change the numbers, unless it has this value.
SILENT = frozenset(
    "feature_extractor_type processor_class n_samples nb_max_frames mel_filters return_attention_mask".split()
)
NEUTRAL = {"padding_value": 0.0, "padding_side": "right", "dither": 0.0}


@dataclass(frozen=True, kw_only=True)
class AudioProcessor:
    """Makes sounds into spectrograms (Radford 2022, Whisper, section 2.2). The defaults are the published ones."""

    n_mels: int = 80
    rate: int = 16000
    n_fft: int = 400
    hop: int = 160
    seconds: int = 30
    """What the model hears at a time; silence is added to what is shorter."""

    @classmethod
    def from_folder(cls, folder: str | Path) -> AudioProcessor:
        """What a model's folder says, in preprocessor_config.json or processor_config.json.

        Raises:
            ClearheadError: neither is there, or one says something that is not understood.
        """
        folder = Path(folder)
        for name, inner in (("preprocessor_config.json", None), ("processor_config.json", "feature_extractor")):
            raw = read_json(folder / name)
            raw = raw.get(inner, {}) if inner is not None else raw
            if raw:
                return cls.from_config(raw, str(folder / name))
        raise ClearheadError(
            f"{folder} does not say how sounds are prepared: put the model's preprocessor_config.json there"
        )

    @classmethod
    def from_config(cls, raw: Mapping[str, Any], where: str = "the extractor's config") -> AudioProcessor:
        """What a published config says."""
        kind = raw.get("feature_extractor_type", "WhisperFeatureExtractor")
        if kind != "WhisperFeatureExtractor":
            raise ClearheadError(f"{where}: sounds prepared by {kind} are not understood; WhisperFeatureExtractor is")
        unknown = [k for k, v in raw.items() if k not in READ and k not in SILENT and v != NEUTRAL.get(k)]
        if unknown:
            raise ClearheadError(
                f"{where}: not understood: {', '.join(f'{key!r} = {raw[key]!r}' for key in unknown)}. It may change "
                "the spectrogram, so it is not dropped in silence; remove it if it does not matter"
            )
        given = {ours: raw[theirs] for theirs, ours in READ.items() if raw.get(theirs) is not None}
        odd = next((f"{k} is {v!r}" for k, v in given.items() if not isinstance(v, int) or v < 1), None)
        if odd is not None:
            raise ClearheadError(f"{where}: {odd}; a whole number above 0 is expected")
        return cls(**given)

    def to_config(self) -> dict[str, Any]:
        """What preprocessor_config.json says of it."""
        said = {theirs: getattr(self, ours) for theirs, ours in READ.items()}
        return {
            "feature_extractor_type": "WhisperFeatureExtractor",
            **said,
            "n_samples": self.seconds * self.rate,
            "nb_max_frames": self.n_frames,
            **NEUTRAL,
            "return_attention_mask": False,
        }

    @property
    def n_frames(self) -> int:
        """Of every spectrogram."""
        return self.seconds * self.rate // self.hop

    @cached_property
    def filters(self) -> Float[Tensor, "M W"]:
        """The weight of each Fourier bin in each band."""
        return mel_filters(self.n_mels, self.n_fft, self.rate)

    def __call__(
        self, sounds: Sound | Sequence[Sound], rate: int | None = None, *, cut: bool = False
    ) -> Float[Tensor, "B M F"]:
        """Spectrograms of one sound or several.

        Args:
            sounds: files, or arrays of samples from -1 to 1: (n), or (n, channels), which are averaged.
            rate: samples a second of arrays; None says that it is the model's. Files say it themselves.
            cut: take the beginning of what is longer than the model hears at a time, which is refused otherwise.

        Raises:
            ClearheadError: one is no sound, has another rate, or is too long.
        """
        batch = isinstance(sounds, list | tuple) and not (len(sounds) and isinstance(sounds[0], int | float))
        several: list[Any] = list(sounds) if batch else [sounds]  # type: ignore[arg-type]
        if not several:
            raise ClearheadError("there are no sounds; give one at least")
        padded_BN = torch.stack([self._fit(sound, rate, cut) for sound in several])
        return log_mel(padded_BN, self.filters, self.n_fft, self.hop)

    def _fit(self, sound: Sound, rate: int | None, cut: bool) -> Float[Tensor, "N"]:
        """One channel of exactly the length that the model hears."""
        what = "the sound"
        if isinstance(sound, str | Path):
            what = str(sound)
            sound, rate = read_sound(sound)
        samples = mono(sound)
        if rate is not None and rate != self.rate:
            raise ClearheadError(
                f"{what} has {rate:,} samples a second, and this model hears {self.rate:,}; resample it, for example "
                f"with `ffmpeg -i in.wav -ar {self.rate} out.wav` or scipy.signal.resample_poly(x, {self.rate}, {rate})"
            )
        n_heard = self.seconds * self.rate
        if len(samples) > n_heard and not cut:
            raise ClearheadError(
                f"{what} lasts {len(samples) / self.rate:.1f} s, and this model hears {self.seconds} s at a time; give "
                "it in pieces, or say cut=True for its beginning alone"
            )
        heard = samples[:n_heard]
        return torch.from_numpy(np.pad(heard, (0, n_heard - len(heard))))


def mono(sound: Any) -> NDArray[np.float32]:
    """Samples as one channel of real numbers; several channels, last or first, are averaged."""
    if isinstance(sound, Tensor):
        sound = sound.detach().cpu().numpy()
    array = np.asarray(sound)
    if not np.issubdtype(array.dtype, np.number) or np.issubdtype(array.dtype, np.complexfloating):
        raise ClearheadError(f"a {type(sound).__name__} is no sound; give a file, or samples from -1 to 1")
    if np.issubdtype(array.dtype, np.integer):
        info = np.iinfo(array.dtype)
        if array.dtype.itemsize not in (1, 2, 4) or info.min == 0:
            raise ClearheadError(f"samples of {array.dtype} have no known range; give real numbers from -1 to 1")
        array = array / -float(info.min)
    if array.ndim == 2:
        array = array.mean(axis=0 if array.shape[0] < array.shape[1] else 1)
    if array.ndim != 1 or not len(array):
        raise ClearheadError(f"an array of shape {array.shape} is no sound; (n) or (n, channels) are")
    if not np.isfinite(array).all():
        raise ClearheadError("the sound has samples that are not numbers")
    return array.astype(np.float32)


def read_sound(path: str | Path) -> tuple[NDArray[np.float32], int]:
    """The samples of a file, (n, channels), and how many there are a second.

    WAV files of whole numbers need nothing else; other formats are read by the package `soundfile`.

    Raises:
        ClearheadError: there is no such file, or it can't be read.
    """
    if not Path(path).is_file():
        raise ClearheadError(f"there is no file {path}")
    if importlib.util.find_spec("soundfile") is not None:
        soundfile = importlib.import_module("soundfile")
        try:
            samples, rate = soundfile.read(str(path), dtype="float32", always_2d=True)
        except RuntimeError as problem:
            raise ClearheadError(f"{path} can't be read as a sound: {problem}") from problem
        return samples, int(rate)
    try:
        with wave.open(str(path), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as problem:
        raise ClearheadError(
            f"{path} can't be read as a WAV file ({problem or 'it is cut short'}); install soundfile for other "
            "formats, or convert it with `ffmpeg -i in -c:a pcm_s16le out.wav`"
        ) from problem
    return _samples(data, width).reshape(-1, channels), rate


def _samples(data: bytes, width: int) -> NDArray[np.float32]:
    """Whole numbers of `width` bytes as real ones from -1 to 1. Single bytes are stored from 0 to 255."""
    if width == 1:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - np.float32(128)) / np.float32(128)
    # Put at the top of four bytes, all other widths are one.
    wide = np.zeros((len(data) // width, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(data, np.uint8)[: len(data) // width * width].reshape(-1, width)
    samples: NDArray[np.float32] = (wide.view("<i4")[:, 0] / 2.0**31).astype(np.float32)
    return samples
