"""Batches of pictures: which are held out, in which order the others come, and how they are moved a little each time.

Everything follows from the seed and the number of the step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.config import PatchesConfig, TransformerConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.images import ImageProcessor
from clearhead.training.config import PicturesConfig
from clearhead.training.data.batches import Batch, generator
from clearhead.training.data.pictures import PictureStore

Numbers = NDArray[np.int64]
ORDER, CHANGE, SPLIT, VALIDATION, SHOWN = range(5)
"""What a random number is for."""


# ---- which are held out


def split_pictures(store: PictureStore, data: PicturesConfig, *, by_label: bool = True) -> tuple[Numbers, Numbers]:
    """The numbers of the pictures to learn from, and of those to measure on.

    Raises:
        UsageError: the data keeps none apart itself, and that is asked for; or nothing is left to learn from.
    """
    labels_N = np.array(store.labels)
    every = np.arange(len(labels_N))
    if data.split == "own":
        if store.apart_N is None:
            raise UsageError(
                "data.split is own, and the data keeps no pictures apart itself (folders train and test, or an array "
                "split); leave it at labels"
            )
        held = every[store.apart_N]
    elif data.split == "last":
        held = every[len(every) - round(len(every) * data.held_out) :]
    else:
        held = stratified(labels_N if by_label else np.zeros(len(every)), data.held_out, data.seed, SPLIT)
    learnt = np.setdiff1d(every, held)
    if data.validation:
        kinds = labels_N[learnt] if by_label else np.zeros(len(learnt))
        held = learnt[stratified(kinds, data.validation, data.seed, VALIDATION)]
        learnt = np.setdiff1d(learnt, held)
    if not len(learnt):
        raise UsageError(f"all {len(every):,} pictures are held out, and none is left to learn from")
    return learnt, held


def stratified(labels_N: NDArray[Any], share: float, seed: int, purpose: int) -> Numbers:
    """The numbers of `share` of the pictures of each label, to the nearest whole picture, drawn from the seed."""
    drawn = []
    for i, label in enumerate(np.unique(labels_N)):
        which = np.flatnonzero(labels_N == label)
        drawn.append(generator(seed, purpose, i).permutation(which)[: int(len(which) * share + 0.5)])
    return np.sort(np.concatenate(drawn))


# ---- how pictures are changed


def moved(pixels_BHWC: NDArray[np.uint8], random: np.random.Generator, shift: int, flip: bool) -> NDArray[np.uint8]:
    """Each picture moved by up to `shift` pixels down or up and across, its edge repeated where there is nothing; and
    half of them mirrored, where `flip` says so.
    """
    n, height, width, _ = pixels_BHWC.shape
    drawn_3B = random.random((n, 3)).T
    down_B, across_B = (drawn_3B[:2] * (2 * shift + 1)).astype(np.int64) - shift
    rows_BH = np.clip(np.arange(height) + down_B[:, None], 0, height - 1)
    columns_BW = np.clip(np.arange(width) + across_B[:, None], 0, width - 1)
    if flip:
        columns_BW = np.where(drawn_3B[2, :, None] < 0.5, columns_BW[:, ::-1], columns_BW)
    found: NDArray[np.uint8] = pixels_BHWC[np.arange(n)[:, None, None], rows_BH[:, :, None], columns_BW[:, None, :]]
    return found


# ---- batches


@dataclass(frozen=True)
class Answers:
    """What there is to tell of each picture."""

    targets_N: NDArray[Any]
    """Which label (int64), or a value (float32)."""
    labels: tuple[str, ...] = ()
    """What labels are called, in the order of the head; none for values."""


class PictureBatches:
    """Batches of `rows` pictures and what they are of."""

    def __init__(
        self,
        store: PictureStore,
        answers: Answers,
        processor: ImageProcessor,
        data: PicturesConfig,
        *,
        rows: int,
        split: tuple[Numbers, Numbers],
    ) -> None:
        self.store, self.answers, self.data, self.rows = store, answers, data, rows
        self.processor = processor
        self._learnt, held = split
        # Data often comes sorted by label: so that the first few batches stand for all of it.
        self._held = generator(data.seed, SHOWN).permutation(held)
        every = np.arange(256, dtype=np.uint8)[:, None, None]
        self._values_CV = processor.normalised(np.repeat(every, processor.channels, axis=2))[:, :, 0]
        self._orders: dict[int, Numbers] = {}

    @property
    def labels(self) -> tuple[str, ...]:
        """What each label is called."""
        return self.answers.labels

    @property
    def n_rows(self) -> int:
        """Pictures an epoch."""
        return len(self._learnt)

    @property
    def n_held_out(self) -> int:
        """Pictures to measure on."""
        return len(self._held)

    def step(self, number: int) -> Batch:
        if number < 0:
            raise UsageError(f"there is no step {number}; steps are counted from 0")
        at = np.arange(number * self.rows, (number + 1) * self.rows)
        epochs = at // self.n_rows
        which = self._learnt[[self._order(int(epoch))[i % self.n_rows] for epoch, i in zip(epochs, at, strict=True)]]
        pixels_BHWC = self.store.pixels_NHWC[which]
        if self.data.shift or self.data.flip:
            random = generator(self.data.seed, CHANGE, number)
            pixels_BHWC = moved(pixels_BHWC, random, self.data.shift, self.data.flip)
        return self._batch(pixels_BHWC, which)

    def held_out(self) -> Iterator[Batch]:
        for first in range(0, len(self._held), self.rows):
            which = self._held[first : first + self.rows]
            yield self._batch(self.store.pixels_NHWC[which], which)

    def describe(self) -> dict[str, Any]:
        about = {
            "hash": self.store.hash,
            "learnt": len(self._learnt),
            "held_out": len(self._held),
            "labels": self.labels,
            "processor": self.processor.to_config(),
            "rows": self.rows,
            "seed": self.data.seed,
        }
        described: dict[str, Any] = json.loads(json.dumps(about))
        return described

    def check(self, config: TransformerConfig) -> None:
        """Refuse a model that reads other pictures, or tells other labels.

        Raises:
            ClearheadError: naming what differs.
        """
        front = config.stack.embed.front if isinstance(config, TransformerConfig) else None
        if not isinstance(front, PatchesConfig):
            raise ClearheadError("the data is pictures, and this model reads none; take one that begins with patches")
        size, channels = self.store.pixels_NHWC.shape[1:3], self.processor.channels
        if front.channels != channels:
            raise ClearheadError(f"pictures have {channels} channels, and the model reads {front.channels}")
        if front.image != size:
            theirs, ours = (f"{high} x {wide}" for high, wide in (front.image, size))
            raise ClearheadError(f"pictures are prepared as {ours} pixels, and the model is for {theirs}")
        if self.labels and not any(head.n_labels == len(self.labels) for _, head in config.heads.labels):
            heads = ", ".join(f"{name} has {head.n_labels}" for name, head in config.heads.labels) or "it has no head"
            raise ClearheadError(
                f"the data has {len(self.labels)} labels, and no head of the model has as many ({heads}); set the "
                "head's n_labels"
            )

    def _batch(self, pixels_BHWC: NDArray[np.uint8], which: Numbers) -> Batch:
        channels = [values_V[pixels_BHWC[..., c]] for c, values_V in enumerate(self._values_CV)]
        return Batch(
            {"pixels": torch.from_numpy(np.stack(channels, axis=1))}, torch.from_numpy(self.answers.targets_N[which])
        )

    def _order(self, epoch: int) -> Numbers:
        if epoch not in self._orders:
            # A batch has pictures of two epochs at most, or of many short ones.
            self._orders = {n: order for n, order in self._orders.items() if n == epoch - 1}
            self._orders[epoch] = generator(self.data.seed, ORDER, epoch).permutation(self.n_rows)
        return self._orders[epoch]


def mean_and_std(pixels_NHWC: NDArray[np.uint8], which: Numbers) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of each channel of these pictures, counted with 0 to 255 as 0 to 1. Rounded, so that a file can say them."""
    counts_CV = np.zeros((pixels_NHWC.shape[3], 256), np.int64)
    for first in range(0, len(which), 1024):
        pixels = pixels_NHWC[which[first : first + 1024]]
        for c in range(len(counts_CV)):
            counts_CV[c] += np.bincount(pixels[..., c].ravel(), minlength=256)
    values_V = np.arange(256) / 255
    mean_C = counts_CV @ values_V / counts_CV.sum(axis=1)
    square_C = counts_CV @ values_V**2 / counts_CV.sum(axis=1)
    std_C = np.sqrt(np.maximum(square_C - mean_C**2, 0))
    # A channel that never changes is left as large as it is.
    return tuple(round(float(m), 4) for m in mean_C), tuple(round(float(s), 4) or 1.0 for s in std_C)
