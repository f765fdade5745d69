"""Batches of sounds and what is said in them: which are held out, in which order the others come, and how they are
changed each time. Everything follows from the seed and the number of the step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.config import FramesConfig, LearnedPositions, SinusoidalPositions, TransformerConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.prompts import window
from clearhead.inputs.audio import AudioProcessor
from clearhead.nn.frames import n_frame_tokens
from clearhead.ops.losses import IGNORE
from clearhead.training.config import AugmentConfig, SoundsConfig
from clearhead.training.data.batches import Batch, collate, generator
from clearhead.training.data.documents import document_key, is_held_out
from clearhead.training.data.rows import Row
from clearhead.training.data.sounds import SoundStore

if TYPE_CHECKING:
    from clearhead.inputs.tokenizer import Tokenizer

Numbers = NDArray[np.int64]
ORDER, CHANGE, SHOWN = range(3)
"""What a random number is for."""


# ---- which are held out


@dataclass(frozen=True)
class Split:
    """The numbers of the sounds to learn from, and of those to measure on."""

    learnt: Numbers
    new_texts: Numbers
    """What is said was never learnt from; who says it was."""
    new_speakers: Numbers
    new_both: Numbers

    def held_out(self) -> dict[str, Numbers]:
        """What is measured on, by how it is new."""
        return {"new_texts": self.new_texts, "new_speakers": self.new_speakers, "new_both": self.new_both}


def split_sounds(texts: Sequence[str], speakers: Sequence[str], share: float, seed: int) -> Split:
    """Of all texts, and of all speakers, about `share` is held out; one that is, stays so when others come or go. A
    speaker who is the only one is not.

    Raises:
        UsageError: nothing is left to learn from.
    """
    text_N = _held_out("text", texts, share, seed)
    speaker_N = _held_out("speaker", speakers, share if len(set(speakers)) > 1 else 0.0, seed)
    split = Split(
        learnt=np.flatnonzero(~text_N & ~speaker_N),
        new_texts=np.flatnonzero(text_N & ~speaker_N),
        new_speakers=np.flatnonzero(~text_N & speaker_N),
        new_both=np.flatnonzero(text_N & speaker_N),
    )
    if not len(split.learnt):
        raise UsageError(
            f"all {len(texts):,} sounds have a text or a speaker that is held out, and none is left to learn from; "
            "set data.held_out to less"
        )
    return split


def _held_out(kind: str, names: Sequence[str], share: float, seed: int) -> NDArray[np.bool_]:
    keys_N = np.array([document_key(f"{kind} {name}", 0) for name in names], np.uint64)
    return is_held_out(keys_N, share, seed)


# ---- how sounds are changed


def changed(
    frames_BMF: NDArray[np.float32], heard_B: Numbers, random: np.random.Generator, how: AugmentConfig, shift: int
) -> NDArray[np.float32]:
    """Each sound begun up to `shift` frames later, as far as its silence leaves room, with silence before it; and then
    masked by its mean, so many times some bands and some frames.
    """
    n, n_mels, n_frames = frames_BMF.shape
    out_BMF = np.empty_like(frames_BMF)
    later_B = (random.random(n) * (np.minimum(n_frames - heard_B, shift) + 1)).astype(np.int64)
    for i, later in enumerate(later_B):
        out_BMF[i, :, :later] = frames_BMF[i].min()
        out_BMF[i, :, later:] = frames_BMF[i, :, : n_frames - later]
    mean_B = frames_BMF.mean(axis=(1, 2))
    drawn_B4N = random.random((n, 4, how.masks))
    for i in range(n):
        for wide, at, long, begin in drawn_B4N[i].T:
            band, size = _span(wide, at, how.bands, n_mels)
            out_BMF[i, band : band + size] = mean_B[i]
            frame, size = _span(long, begin, how.frames, n_frames)
            out_BMF[i, :, frame : frame + size] = mean_B[i]
    return out_BMF


def _span(size: float, at: float, most: int, room: int) -> tuple[int, int]:
    """Where a mask begins and how wide it is, from two numbers from 0 to 1."""
    wide = min(int(size * (most + 1)), room)
    return int(at * (room - wide + 1)), wide


# ---- batches


@dataclass(frozen=True)
class Said:
    """How what is said is told, token by token."""

    tokenizer: Tokenizer
    begin: tuple[int, ...]
    """What the decoder begins with."""
    end: int

    def row(self, text: str) -> Row:
        """The decoder reads the beginning and the text, and tells the text and the end."""
        ids = [*self.begin, *self.tokenizer.encode(text, bos=False), self.end]
        targets_T = np.array(ids[1:], np.int64)
        targets_T[: len(self.begin) - 1] = IGNORE
        return {"tokens": np.array(ids[:-1], np.int64), "targets": targets_T}


class SoundBatches:
    """Batches of `rows` sounds and what is said in them."""

    def __init__(
        self, store: SoundStore, said: Said, processor: AudioProcessor, data: SoundsConfig, *, rows: int, length: int
    ) -> None:
        """length: the most tokens that the decoder reads.

        Raises:
            ClearheadError: a text has more tokens.
        """
        self.store, self.said, self.processor, self.data, self.rows = store, said, processor, data, rows
        self.split = split_sounds(store.texts, store.speakers, data.held_out, data.seed)
        held = np.concatenate([*self.split.held_out().values()])
        # So that the first few batches stand for all of it.
        self._held = generator(data.seed, SHOWN).permutation(np.sort(held))
        rows_of = {text: said.row(text) for text in set(store.texts)}
        self._rows = [rows_of[text] for text in store.texts]
        self.length = max(len(row["tokens"]) for row in self._rows)
        if self.length > length:
            i = next(i for i, row in enumerate(self._rows) if len(row["tokens"]) == self.length)
            raise ClearheadError(
                f"what is said in {store.clips[i].path} takes {self.length} tokens, and {length} are read at most "
                "(batch.length)"
            )
        self._orders: dict[int, Numbers] = {}

    @property
    def n_rows(self) -> int:
        """Sounds an epoch."""
        return len(self.split.learnt)

    def step(self, number: int) -> Batch:
        if number < 0:
            raise UsageError(f"there is no step {number}; steps are counted from 0")
        at = np.arange(number * self.rows, (number + 1) * self.rows)
        which = np.array([self._order(int(i) // self.n_rows)[i % self.n_rows] for i in at])
        how, processor = self.data.augment, self.processor
        frames_BMF = self.store.frames_NMF[which].astype(np.float32)
        if how.shift or how.masks:
            random = generator(self.data.seed, CHANGE, number)
            shift = int(how.shift * processor.rate / processor.hop)
            frames_BMF = changed(frames_BMF, self.store.heard_N[which], random, how, shift)
        return self._batch(frames_BMF, which)

    def held_out(self) -> Iterator[Batch]:
        for first in range(0, len(self._held), self.rows):
            which = self._held[first : first + self.rows]
            yield self._batch(self.store.frames_NMF[which].astype(np.float32), which)

    def describe(self) -> dict[str, Any]:
        about = {
            "hash": self.store.hash,
            "learnt": len(self.split.learnt),
            "held_out": {name: len(which) for name, which in self.split.held_out().items()},
            "processor": self.processor.to_config(),
            "begin": self.said.begin,
            "augment": asdict(self.data.augment),
            "rows": self.rows,
            "seed": self.data.seed,
        }
        described: dict[str, Any] = json.loads(json.dumps(about))
        return described

    def check(self, config: TransformerConfig) -> None:
        """Refuse a model that hears other sounds, or has no room for these.

        Raises:
            ClearheadError: naming what differs.
        """
        front = config.encoder.embed.front if config.encoder is not None else None
        if config.encoder is None or not isinstance(front, FramesConfig):
            raise ClearheadError("the data is sounds, and this model hears none; take one whose encoder reads frames")
        if front.n_mels != self.processor.n_mels:
            raise ClearheadError(f"sounds have {self.processor.n_mels} bands, and the model reads {front.n_mels}")
        n_tokens, places = n_frame_tokens(front, self.processor.n_frames), config.encoder.embed.positions
        if isinstance(places, LearnedPositions | SinusoidalPositions) and n_tokens != places.n:
            raise ClearheadError(
                f"{self.processor.n_frames} frames of {self.processor.seconds} s become {n_tokens} tokens, and the "
                f"model's encoder has {places.n} positions; set data.spectrogram so that these are equal"
            )
        highest = max(int(row["targets"].max()) for row in self._rows)
        if highest >= config.vocab_size:
            raise ClearheadError(
                f"the data has the token {highest}, and the model's vocabulary ends at {config.vocab_size - 1}; use "
                "the tokenizer that came with the model"
            )
        room = window(config)
        if room is not None and self.length > room:
            raise ClearheadError(f"what is said takes up to {self.length} tokens, and the model's decoder reads {room}")

    def _batch(self, frames_BMF: NDArray[np.float32], which: Numbers) -> Batch:
        batch = collate([self._rows[i] for i in which], self.said.tokenizer.pad_id or 0)
        return Batch({**batch.inputs, "frames": torch.from_numpy(frames_BMF)}, batch.targets)

    def _order(self, epoch: int) -> Numbers:
        if epoch not in self._orders:
            # A batch has sounds of two epochs at most, or of many short ones.
            self._orders = {n: order for n, order in self._orders.items() if n == epoch - 1}
            self._orders[epoch] = generator(self.data.seed, ORDER, epoch).permutation(self.split.learnt)
        return self._orders[epoch]
