"""Anything that is a picture, as eight-bit RGB, the right way up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from clearhead.errors import ClearheadError

Picture = str | Path | Image.Image | NDArray[Any] | Tensor


def open_image(picture: Picture) -> Image.Image:
    """A picture in RGB: turned as its camera says, with white behind what is transparent.

    Raises:
        ClearheadError: it is none, or it can't be read.
    """
    if isinstance(picture, Image.Image):
        return _rgb(picture)
    if isinstance(picture, Tensor):
        picture = picture.detach().cpu().numpy()
    if isinstance(picture, np.ndarray):
        return _rgb(_from_array(picture))
    if not isinstance(picture, str | Path):
        raise ClearheadError(f"a {type(picture).__name__} is no picture; give a file, a PIL image or an array")
    try:
        with Image.open(picture) as image:
            image.load()
            return _rgb(image)
    except FileNotFoundError as problem:
        raise ClearheadError(f"there is no file {picture}") from problem
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as problem:
        raise ClearheadError(f"{picture} can't be read as a picture: {problem}") from problem


def _rgb(image: Image.Image) -> Image.Image:
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        return _rgb(Image.fromarray(_eight_bits(np.asarray(image))))
    if image.mode == "F":
        raise ClearheadError("a picture of real numbers has no known range; make it eight bits a channel first")
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def _from_array(array: NDArray[Any]) -> Image.Image:
    """Channels last or first, or none: bytes, 16-bit numbers, or real numbers from 0 to 1."""
    if array.ndim == 3 and array.shape[-1] not in (1, 3, 4) and array.shape[0] in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if 0 in array.shape or not (array.ndim == 2 or (array.ndim == 3 and array.shape[-1] in (3, 4))):
        raise ClearheadError(
            f"an array of shape {array.shape} is no picture; (height, width) or (height, width, 1, 3 or 4) are"
        )
    if np.issubdtype(array.dtype, np.floating):
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise ClearheadError(
                "a picture of real numbers must be from 0 to 1; if it is prepared already, give it to the model itself"
            )
        return Image.fromarray(np.rint(array * 255).astype(np.uint8))
    if not np.issubdtype(array.dtype, np.integer):
        raise ClearheadError(f"an array of {array.dtype} is no picture; give bytes, or real numbers from 0 to 1")
    if array.dtype == np.uint8:
        return Image.fromarray(np.ascontiguousarray(array))
    return Image.fromarray(_eight_bits(array))


def _eight_bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Whole numbers as bytes: sixteen bits where they are stored in as many, or are too large for eight."""
    if array.min() < 0 or array.max() > 65535:
        raise ClearheadError(f"a picture has numbers from {array.min()} to {array.max()}; at most 16 bits are read")
    sixteen = array.dtype.itemsize == 2 or array.max() > 255
    return (np.rint(array / 257) if sixteen else array).astype(np.uint8)
