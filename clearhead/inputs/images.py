"""Pictures as a model reads them: resized, cropped and normalised as its preprocessor_config.json says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.inputs.open_image import Picture, open_image
from clearhead.inputs.tokenizer_folder import read_json

Size = tuple[int, int]
Channels = tuple[float, ...]
"""A number a channel: three of red, green and blue, or one of grey."""

HALF: Channels = (0.5, 0.5, 0.5)
# What keys that a file leaves out mean, by the name of the published class.
PROCESSORS: dict[str, dict[str, Any]] = {
    "ViTImageProcessor": {"resample": Image.Resampling.BILINEAR, "size": 224, "image_mean": HALF, "image_std": HALF},
    "DeiTImageProcessor": {
        "resample": Image.Resampling.BICUBIC,
        "size": 256,
        "do_center_crop": True,
        "crop_size": 224,
        "image_mean": HALF,
        "image_std": HALF,
    },
    "CLIPImageProcessor": {
        "resample": Image.Resampling.BICUBIC,
        "size": {"shortest_edge": 224},
        "do_center_crop": True,
        "crop_size": 224,
        "image_mean": (0.48145466, 0.4578275, 0.40821073),
        "image_std": (0.26862954, 0.26130258, 0.27577711),
    },
}
KEYS = frozenset(
    "do_resize size resample do_center_crop crop_size do_rescale rescale_factor do_normalize image_mean "
    "image_std".split()
)
SILENT = frozenset(
    "image_processor_type feature_extractor_type processor_class do_convert_rgb use_fast default_to_square "
    "_valid_processor_keys".split()
)
"""Keys that change nothing here: pictures are always made RGB, or grey where there is one mean."""


@dataclass(frozen=True, kw_only=True)
class Resize:
    """To a size, or so that the shorter side has `shortest` pixels and the proportions stay."""

    size: Size | None = None
    shortest: int | None = None
    resample: int = Image.Resampling.BILINEAR

    def target(self, height: int, width: int) -> Size:
        """The new height and width."""
        if self.size is not None:
            return self.size
        assert self.shortest is not None
        short, long = sorted((height, width))
        longer = int(self.shortest * long / short)
        return (longer, self.shortest) if width <= height else (self.shortest, longer)


@dataclass(frozen=True, kw_only=True)
class ImageProcessor:
    """Makes pictures into tensors, RGB, or grey where there is one mean. Each step may be missing; they go in this
    order.
    """

    resize: Resize | None = None
    crop: Size | None = None
    scale: float | None = 1 / 255
    mean: Channels | None = None
    std: Channels | None = None

    @classmethod
    def from_folder(cls, folder: str | Path) -> ImageProcessor:
        """What a model's folder says, in preprocessor_config.json or processor_config.json.

        Raises:
            ClearheadError: neither is there, or one says something that is not understood.
        """
        folder = Path(folder)
        for name, inner in (("preprocessor_config.json", None), ("processor_config.json", "image_processor")):
            raw = read_json(folder / name)
            raw = raw.get(inner, {}) if inner is not None else raw
            if raw:
                return cls.from_config(raw, str(folder / name))
        raise ClearheadError(
            f"{folder} does not say how pictures are prepared: put the model's preprocessor_config.json there"
        )

    @classmethod
    def from_config(cls, raw: Mapping[str, Any], where: str = "the processor's config") -> ImageProcessor:
        """What a published config says, of today (sizes by name) or older (one number)."""
        kind = _kind(raw, where)
        given = {key: value for key, value in raw.items() if value is not None}
        unknown = sorted(key for key in given if key not in KEYS | SILENT)
        if unknown:
            raise ClearheadError(
                f"{where}: not understood: {', '.join(f'{key!r} = {given[key]!r}' for key in unknown)}. It may change "
                "the picture, so it is not dropped in silence; remove it if it does not matter"
            )
        said = {**PROCESSORS[kind], **given}
        # One number is the shorter side where the published default is one, and a square elsewhere.
        keeps_shape = isinstance(PROCESSORS[kind]["size"], dict)
        resize = crop = scale = mean = std = None
        if said.get("do_resize", True):
            resize = _resize(said["size"], int(said["resample"]), keeps_shape, where)
        if said.get("do_center_crop", False):
            crop = _size(said.get("crop_size", said["size"]), "crop_size", where)
        if said.get("do_rescale", True):
            scale = float(said.get("rescale_factor", 1 / 255))
        if said.get("do_normalize", True):
            mean, std = (_channels(said[key], key, where) for key in ("image_mean", "image_std"))
            if len(mean) != len(std):
                raise ClearheadError(
                    f"{where}: image_mean is {said['image_mean']!r} and image_std {said['image_std']!r}; both need as "
                    "many numbers"
                )
        return cls(resize=resize, crop=crop, scale=scale, mean=mean, std=std)

    def __call__(self, pictures: Picture | Sequence[Picture]) -> Float[Tensor, "B C height width"]:
        """Tensors of one picture or several: files, PIL images, or arrays, with channels last or first.

        Raises:
            ClearheadError: one is no picture, or they come out in different sizes.
        """
        batch = isinstance(pictures, list | tuple) or getattr(pictures, "ndim", 0) == 4
        several: list[Any] = list(pictures) if batch else [pictures]  # type: ignore[arg-type]
        if not several:
            raise ClearheadError("there are no pictures; give one at least")
        ready = [self.normalised(self.fitted(open_image(picture))) for picture in several]
        shapes = sorted({array.shape[1:] for array in ready})
        if len(shapes) > 1:
            raise ClearheadError(
                f"pictures of {' and '.join(f'{h} x {w}' for h, w in shapes)} pixels can't be one batch, and this "
                "processor does not bring them to one size; give them one by one"
            )
        return torch.from_numpy(np.stack(ready))

    @property
    def channels(self) -> int:
        """3, or 1 for grey."""
        return 3 if self.mean is None else len(self.mean)

    @property
    def size(self) -> Size | None:
        """Height and width of what comes out; None where it follows the picture's."""
        return self.crop or (self.resize.size if self.resize is not None else None)

    def fitted(self, image: Image.Image) -> NDArray[np.uint8]:
        """A picture in RGB of the right size and with the right channels, (height, width, C) in bytes."""
        if self.channels == 1:
            image = image.convert("L")
        if self.resize is not None:
            height, width = self.resize.target(image.height, image.width)
            image = image.resize((width, height), resample=Image.Resampling(self.resize.resample))
        pixels_HWC = np.asarray(image).reshape(image.height, image.width, self.channels)
        return pixels_HWC if self.crop is None else _center_crop(pixels_HWC, self.crop)

    def normalised(self, pixels_HWC: NDArray[np.uint8]) -> NDArray[np.float32]:
        """What `fitted` gave as the model reads it, (C, height, width)."""
        # In doubles and then rounded, as published; what follows is in single precision.
        scaled = pixels_HWC.astype(np.float64) * (1.0 if self.scale is None else self.scale)
        x_HWC: NDArray[Any] = scaled.astype(np.float32)
        if self.mean is not None and self.std is not None:
            x_HWC = (x_HWC - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(x_HWC.transpose(2, 0, 1))

    def to_config(self) -> dict[str, Any]:
        """The published config that `from_config` reads as this processor."""
        config: dict[str, Any] = {
            "image_processor_type": next(iter(PROCESSORS)),
            "do_resize": self.resize is not None,
            "do_center_crop": self.crop is not None,
            "do_rescale": self.scale is not None,
            "do_normalize": self.mean is not None,
        }
        if self.resize is not None:
            config |= {"size": _named(self.resize.size or self.resize.shortest), "resample": int(self.resize.resample)}
        if self.crop is not None:
            config["crop_size"] = _named(self.crop)
        if self.scale is not None:
            config["rescale_factor"] = self.scale
        if self.mean is not None and self.std is not None:
            config |= {"image_mean": [*self.mean], "image_std": [*self.std]}
        return config


def _center_crop(pixels_HWC: NDArray[Any], size: Size) -> NDArray[Any]:
    """The middle of a picture; where the picture is smaller, there is black around it."""
    height, width = size
    top, left = (pixels_HWC.shape[0] - height) // 2, (pixels_HWC.shape[1] - width) // 2
    inside = pixels_HWC[max(top, 0) : max(top, 0) + height, max(left, 0) : max(left, 0) + width]
    if inside.shape[:2] == size:
        return inside
    framed = np.zeros((height, width, pixels_HWC.shape[2]), pixels_HWC.dtype)
    down, across = max(-top, 0), max(-left, 0)
    framed[down : down + inside.shape[0], across : across + inside.shape[1]] = inside
    return framed


def _kind(raw: Mapping[str, Any], where: str) -> str:
    """Which published class the config is of."""
    named = raw.get("image_processor_type") or raw.get("feature_extractor_type")
    if named is None:
        if isinstance(raw.get("size"), int) and raw.get("do_center_crop"):
            raise ClearheadError(
                f"{where}: size is one number, and without an image_processor_type it can't be told whether of the "
                'shorter side or of both; write {"shortest_edge": ...} or {"height": ..., "width": ...}'
            )
        named = "ViTImageProcessor"
    kind = str(named).removesuffix("Pil").removesuffix("Fast").replace("FeatureExtractor", "ImageProcessor")
    if kind not in PROCESSORS:
        raise ClearheadError(
            f"{where}: pictures prepared by {named} are not understood; there are {', '.join(PROCESSORS)}"
        )
    return kind


def _resize(size: Any, resample: int, keeps_shape: bool, where: str) -> Resize:
    if isinstance(size, Mapping) and set(size) == {"shortest_edge"}:
        return Resize(shortest=_positive(size["shortest_edge"], "size", where), resample=resample)
    if keeps_shape and isinstance(size, int):
        return Resize(shortest=_positive(size, "size", where), resample=resample)
    return Resize(size=_size(size, "size", where), resample=resample)


def _size(size: Any, name: str, where: str) -> Size:
    """Height and width, from a number, two, or by name."""
    if isinstance(size, Mapping) and set(size) == {"height", "width"}:
        size = (size["height"], size["width"])
    elif isinstance(size, int):
        size = (size, size)
    if not isinstance(size, list | tuple) or len(size) != 2:
        raise ClearheadError(f"{where}: {name} is {size!r}; a number, or height and width, are expected")
    return _positive(size[0], name, where), _positive(size[1], name, where)


def _named(size: Size | int | None) -> dict[str, int | None]:
    """A size as published: both sides, or the shorter one."""
    return {"height": size[0], "width": size[1]} if isinstance(size, tuple) else {"shortest_edge": size}


def _positive(value: Any, name: str, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ClearheadError(f"{where}: {name} has {value!r}; a number of pixels is expected")
    return value


def _channels(values: Any, name: str, where: str) -> Channels:
    """A number a channel. One that is in no list is for all three, as published."""
    values = [values] * 3 if isinstance(values, int | float) else list(values)
    if len(values) not in (1, 3) or not all(isinstance(v, int | float) for v in values):
        raise ClearheadError(
            f"{where}: {name} is {values!r}; three numbers are expected, for red, green and blue, or one for grey"
        )
    return tuple(float(v) for v in values)
