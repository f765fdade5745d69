"""Chapter 6: the same block fed with a picture (S47)."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from clearhead.config import PatchesConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.images import ImageProcessor
from clearhead.lens import look
from clearhead.studio.context import Studio
from clearhead.studio.lesson.block.drawn_clothes import SHAPES, drawn
from clearhead.studio.lesson.block.fed import TOP, best_of, lengths_of, told_of
from clearhead.studio.operations import Answer, operation
from clearhead.training.corpora import fashion


@cache
def _test_pictures() -> tuple[NDArray[np.uint8], NDArray[np.uint8]] | None:
    """The pictures that clear-vit never learned from, and their labels, where the data set is installed."""
    if not fashion.PLACE.is_dir():
        return None
    try:
        images, labels = (
            fashion.read_idx(fashion.PLACE / f"t10k-{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1")
        )
    except ClearheadError:
        return None
    return images, labels


@lru_cache(maxsize=64)
def _picture(kind: str, index: int) -> tuple[NDArray[np.uint8], str]:
    """(28, 28) greys, and what is to be seen."""
    if kind == "drawn":
        name = list(SHAPES)[index % len(SHAPES)]
        return drawn(name), f"{name}, drawn by rule"
    found = _test_pictures()
    if found is None:
        raise UsageError(
            "the pictures of the data set are not on this machine. Run: apt-get install dataset-fashion-mnist; the "
            "drawn ones need nothing"
        )
    return found[0][index], f"{fashion.NAMES[int(found[1][index])]}, picture {index:,} of the test set"


@operation("block.picture")
def picture(
    studio: Studio,
    *,
    kind: Literal["drawn", "test"] = "drawn",
    index: Annotated[int, Field(ge=0, le=9999)] = 0,
    patch: Annotated[int, Field(ge=0, le=15)] = 5,
) -> Answer:
    """clear-vit reads a picture of clothes in sixteen squares and names what it is.

    Raises:
        UsageError: the picture is of the data set, which is not on this machine.
    """
    grey_HW, seen_there = _picture(kind, index)
    with studio.models.lock("clear-vit"):
        model = studio.models.get("clear-vit")
        front = model.config.stack.embed.front
        assert isinstance(front, PatchesConfig) and model.origin is not None
        pixels_1CHW = ImageProcessor.from_folder(model.origin.where)(grey_HW)
        seen = look(model, {"pixels": pixels_1CHW}, "layers.*.resid_pre", "layers.*.resid_post", "layers.*.pattern")
    down, across = front.grid
    squares = [f"row {i + 1}, column {j + 1}" for i in range(down) for j in range(across)]
    names = [str(name) for name in model.origin.raw_config["id2label"].values()]
    best = best_of(seen.output[0], names)
    made = (
        f"The picture is cut into {down * across} squares of {front.patch} × {front.patch} pixels, and one matrix "
        "turns each into a vector. A learned vector goes first: the class is read from it."
    )
    n = len(model.layers)
    from_class_HS = seen[f"layers.{n - 1}.mixer.pattern"][0, :, 0, 1:]
    return Answer(
        data={
            **told_of(model, model.config.stack, "layers", ["class", *squares], made),
            "input": "picture",
            "model": "clear-vit",
            **best,
            "there": seen_there,
            "grid": [down, across],
            "patch": front.patch,
            "chosen": patch,
            "drawn": list(SHAPES),
            "has_test": _test_pictures() is not None,
        },
        arrays={
            "picture": grey_HW,
            "lengths": lengths_of(seen, "layers", n),
            "attention": from_class_HS.mean(dim=0).unflatten(0, (down, across)),
        },
        python=(_DRAWN if kind == "drawn" else _TEST).format(
            name=list(SHAPES)[index % len(SHAPES)], index=index, top=TOP
        ),
        printed=tuple(answer["share"] for answer in best["answers"]),
    )


_DRAWN = """\
import torch

import clearhead
from clearhead.inputs.images import ImageProcessor
from clearhead.studio.lesson.block.drawn_clothes import drawn

model = clearhead.load("clear-vit")
pixels = ImageProcessor.from_folder(model.origin.where)(drawn("{name}"))
with torch.no_grad():
    logits = model(pixels=pixels)[0]
for share in logits.softmax(dim=-1).topk({top}).values:
    print(float(share))
"""
_TEST = """\
import torch

import clearhead
from clearhead.inputs.images import ImageProcessor
from clearhead.training.corpora import fashion

model = clearhead.load("clear-vit")
picture = fashion.read_idx(fashion.PLACE / "t10k-images-idx3-ubyte.gz")[{index}]
pixels = ImageProcessor.from_folder(model.origin.where)(picture)
with torch.no_grad():
    logits = model(pixels=pixels)[0]
for share in logits.softmax(dim=-1).topk({top}).values:
    print(float(share))
"""
