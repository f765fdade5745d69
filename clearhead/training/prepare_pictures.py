"""The data of a run on pictures: read once and brought to the model's size, with the processor that does so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.checkpoints.source import open_checkpoint
from clearhead.config import PatchesConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.images import ImageProcessor, Resize
from clearhead.model.transformer import Transformer
from clearhead.training.config import ModelConfig, PicturesConfig, StartConfig, TrainConfig
from clearhead.training.corpora import located
from clearhead.training.data.batches import in_order, split
from clearhead.training.data.picture_batches import Answers, PictureBatches, mean_and_std, split_pictures
from clearhead.training.data.pictures import PictureStore, store_pictures
from clearhead.training.measures.labels import measure_labels, measure_values
from clearhead.training.prepared import Prepared
from clearhead.training.start import label_names, newest

PROCESSOR = "preprocessor_config.json"


def prepare_pictures(config: TrainConfig, data: PicturesConfig, folder: Path, *, quiet: bool = False) -> Prepared:
    """Read the pictures, or find them read in `folder`."""
    if config.objective.name not in ("labels", "regress"):
        raise UsageError(
            f"objective.name is {config.objective.name}, and pictures are labelled; set it to labels or regress"
        )
    processor = fitting(config)
    store = store_pictures(located(data.path), processor, folder, progress=False if quiet else None)
    named = label_names(config.model) if isinstance(config.model, StartConfig) else None
    answers = values(store) if config.objective.name == "regress" else labels(store, named)
    parts = split_pictures(store, data, by_label=bool(answers.labels))
    if not isinstance(config.model, StartConfig):
        mean, std = mean_and_std(store.pixels_NHWC, parts[0])
        processor = replace(processor, mean=mean, std=std)
    batches = PictureBatches(store, answers, processor, data, rows=config.batch.rows, split=parts)
    text = json.dumps(processor.to_config(), indent=2) + "\n"
    return Prepared(
        batches=batches,
        measure=lambda model: measure(model, config, batches),
        files={PROCESSOR: text.encode()},
        labels=answers.labels,
    )


def measure(model: Transformer, config: TrainConfig, batches: PictureBatches) -> dict[str, Any]:
    """How well a model does on the pictures that were held out; nothing where none were."""
    if not batches.n_held_out:
        return {}
    held = (part for batch in batches.held_out() for part in split(batch, config.batch.micro_rows or batches.rows))
    head = config.objective.head or None
    if config.objective.name == "regress":
        return measure_values(model, held, head=head).summary()
    scores = measure_labels(model, held, head=head)
    return {**scores.summary(), "accuracy_by_label": scores.by_label(batches.labels)}


def fitting(config: TrainConfig) -> ImageProcessor:
    """What brings pictures to the size that a model reads: the checkpoint's own processor, or one that only resizes.

    Raises:
        ClearheadError: the model reads no pictures, or its processor does not bring them to one size.
    """
    if isinstance(config.model, StartConfig):
        with open_checkpoint(newest(config.model.source)) as checkpoint:
            where = checkpoint.where
        processor = ImageProcessor.from_folder(where)
        if processor.size is None:
            raise ClearheadError(
                f"{Path(where) / PROCESSOR} leaves pictures in their own shapes, which can't be one batch; give it a "
                "size of height and width, or a crop_size"
            )
        return processor
    front = config.model.config.stack.embed.front if isinstance(config.model, ModelConfig) else None
    if not isinstance(front, PatchesConfig):
        raise ClearheadError("the data is pictures, and this model reads none; take one that begins with patches")
    if front.channels not in (1, 3):
        raise ClearheadError(f"the model reads {front.channels} channels; pictures have 3, or 1 where they are grey")
    nothing = (0.0,) * front.channels
    return ImageProcessor(resize=Resize(size=front.image), mean=nothing, std=(1.0,) * front.channels)


def labels(store: PictureStore, named: tuple[str, ...] | None = None) -> Answers:
    """Which label each picture has. `named`: in the order of a head that is there already.

    Raises:
        ClearheadError: a picture's label is none of those.
    """
    names = named or store.names or tuple(in_order(set(store.labels)))
    number = {name: i for i, name in enumerate(names)}
    odd = next((label for label in store.labels if label not in number), None)
    if odd is not None:
        raise ClearheadError(
            f"a picture is labelled {odd!r}, which is none of {', '.join(map(repr, names[:10]))}; a new head learns "
            "other labels (model.new_head)"
        )
    return Answers(np.array([number[label] for label in store.labels], np.int64), names)


def values(store: PictureStore) -> Answers:
    """The number that each picture is labelled with.

    Raises:
        ClearheadError: one is no number.
    """
    numbers = []
    for label in store.labels:
        try:
            numbers.append(float(label))
        except ValueError:
            raise ClearheadError(f"a picture is labelled {label!r}, which is no number") from None
    return Answers(np.array(numbers, np.float32))
