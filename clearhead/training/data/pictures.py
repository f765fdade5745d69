"""Pictures and what each is of, in folders or in arrays; read once, brought to one size, and mapped into memory from
then on.

A folder of them holds `pixels.npy` (N, height, width, C) in bytes, `labels.npy` and an index. It takes its name when it
is whole: a hash of the sources and of how pictures are brought to size.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import ClearheadError
from clearhead.inputs.images import ImageProcessor
from clearhead.inputs.open_image import open_image
from clearhead.progress import progress_bar
from clearhead.training.checkpoint import replacing
from clearhead.training.data.documents import Corpus, Source, hash_of
from clearhead.training.data.shards import file_hashes

VERSION = 1
INDEX, PIXELS, LABELS = "index.json", "pixels.npy", "labels.npy"
ARRAYS = "pictures.npz"
"""What a folder holds where its pictures are arrays."""
ENDINGS = frozenset(".png .jpg .jpeg .bmp .gif .webp .tif .tiff .ppm .pgm .pbm".split())
LEARNT, APART = "train", ("test", "val", "validation")
"""The folders of data that has been split already."""
AT_ONCE = 64
"""So many pictures are read by one thread at a time."""


class Pictures(Protocol):
    """Pictures that can be read, in an order that does not change."""

    @property
    def files(self) -> Sequence[Source]:
        """What they are read from."""
        ...

    @property
    def labels(self) -> Sequence[str]:
        """What each picture is of."""
        ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """What labels are called, in order; None where nobody says."""
        ...

    @property
    def apart(self) -> Sequence[bool] | None:
        """Which pictures the data itself keeps apart to measure on; None where it keeps none."""
        ...

    def read(self, first: int, stop: int, processor: ImageProcessor) -> tuple[list[NDArray[np.uint8]], list[str]]:
        """Pictures as `processor` fits them, and what is wrong with those that can't be read."""
        ...


# ---- where they are


def find_pictures(path: Path) -> Pictures:
    """The pictures of a folder, or of an .npz file.

    Raises:
        ClearheadError: there are none, or it can't be told what they are of.
    """
    if path.is_dir():
        return ArrayPictures(path / ARRAYS) if (path / ARRAYS).is_file() else FolderPictures(path)
    if path.suffix == ".npz" and path.is_file():
        return ArrayPictures(path)
    if path.exists():
        raise ClearheadError(f"{path} is no folder of pictures, and no .npz file of arrays")
    raise ClearheadError(f"there is no folder or file {path}")


class FolderPictures:
    """A folder with one folder a label; or two such, `train` and `test`."""

    def __init__(self, folder: Path) -> None:
        inside = [path.name for path in _listed(folder) if path.is_dir()]
        own = len(inside) == 2 and LEARNT in inside and any(name in APART for name in inside)
        files, labels, apart = [], [], []
        for part in [folder / name for name in sorted(inside, key=lambda name: name != LEARNT)] if own else [folder]:
            for label, path in _labelled(part):
                files.append(_source(path, path.relative_to(folder).as_posix()))
                labels.append(label)
                apart.append(own and part.name != LEARNT)
        if not files:
            raise ClearheadError(
                f"{folder} has no pictures in it; put them in one folder a label, as files that end in "
                f"{', '.join(sorted(ENDINGS))}"
            )
        self.files, self.labels, self.names = files, labels, None
        self.apart = apart if own else None

    def read(self, first: int, stop: int, processor: ImageProcessor) -> tuple[list[NDArray[np.uint8]], list[str]]:
        """Files `first` to `stop`."""
        return _fitted((file.path for file in self.files[first:stop]), processor)


def _source(path: Path, name: str) -> Source:
    return Source(path=str(path), name=name, format="picture", size=path.stat().st_size)


def _listed(folder: Path) -> list[Path]:
    """What is in a folder and not hidden, by name."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as problem:
        raise ClearheadError(f"{folder} can't be read: {problem.strerror or problem}") from problem


def _labelled(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every picture below a folder of folders, with its label."""
    for path in _listed(folder):
        if not path.is_dir():
            if path.suffix.lower() in ENDINGS:
                raise ClearheadError(f"{path} is in no folder that says what it is of; put it in the one of its label")
            continue
        pictures = [one for one in sorted(path.rglob("[!.]*")) if one.suffix.lower() in ENDINGS and one.is_file()]
        if not pictures:
            raise ClearheadError(f"{path} has no pictures in it; remove the folder, or the label has nothing to show")
        yield from ((path.name, one) for one in pictures)


class ArrayPictures:
    """An .npz file: `images` (N, height, width) or with channels last, in bytes or real numbers from 0 to 1; `labels`
    (N), numbers or names; and perhaps `names` of numbered labels, and `split` (N), "train" or "test".
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = [_source(path, path.name)]

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is in the file, which is only looked into where pictures are read anew."""
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except Exception as problem:  # a broken zip or array raises many kinds
            raise ClearheadError(f"{self.path} can't be read as arrays: {problem}") from problem
        missing = [name for name in ("images", "labels") if name not in arrays]
        if missing:
            raise ClearheadError(f"{self.path} has no array {missing[0]!r}; there are {', '.join(arrays) or 'none'}")
        images, labels = arrays["images"], arrays["labels"]
        if images.ndim not in (3, 4) or not len(images):
            raise ClearheadError(
                f"{self.path}: images has shape {images.shape}; (N, height, width) or (N, height, width, channels) is "
                "expected"
            )
        if labels.shape != (len(images),):
            raise ClearheadError(f"{self.path}: labels has shape {labels.shape}, and there are {len(images)} images")
        return arrays

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """What labels are called, where the file says it."""
        return tuple(map(str, self.arrays["names"])) if "names" in self.arrays else None

    @cached_property
    def labels(self) -> list[str]:
        """What each image is of, by name."""
        labels = self.arrays["labels"]
        if self.names is None or not np.issubdtype(labels.dtype, np.integer):
            return [str(label) for label in labels.tolist()]
        odd = next((n for n in labels.tolist() if not 0 <= n < len(self.names)), None)
        if odd is not None:
            raise ClearheadError(f"{self.path}: a label is {odd}, and there are {len(self.names)} names")
        return [self.names[n] for n in labels.tolist()]

    @cached_property
    def apart(self) -> list[bool] | None:
        """Which images the file keeps apart."""
        split, n = self.arrays.get("split"), len(self.labels)
        if split is None:
            return None
        said = [str(part) for part in split.tolist()]
        odd = next((part for part in said if part != LEARNT and part not in APART), None)
        if odd is not None or len(said) != n:
            what = f"{odd!r}" if odd is not None else f"{len(said)} long, and there are {n} images"
            raise ClearheadError(f"{self.path}: split is {what}; {LEARNT!r} or {APART[0]!r} is expected of each image")
        return [part != LEARNT for part in said]

    def read(self, first: int, stop: int, processor: ImageProcessor) -> tuple[list[NDArray[np.uint8]], list[str]]:
        """Images `first` to `stop`."""
        images = self.arrays["images"][first:stop]
        if (
            images.dtype == np.uint8
            and processor.size == images.shape[1:3]
            and images[0].size == np.prod([*images.shape[1:3], processor.channels])
        ):
            # As they are: nothing would change.
            return [*images.reshape(len(images), *images.shape[1:3], processor.channels)], []
        pixels, wrong = _fitted(images, processor)
        return pixels, [f"{self.path}, in images {first} to {first + len(images) - 1}: {words}" for words in wrong]


def _fitted(pictures: Any, processor: ImageProcessor) -> tuple[list[NDArray[np.uint8]], list[str]]:
    """Each picture as `processor` fits it, and what is wrong with those that can't be read."""
    pixels, wrong = [], []
    for picture in pictures:
        try:
            pixels.append(processor.fitted(open_image(picture)))
        except ClearheadError as problem:
            wrong.append(str(problem))
    return pixels, wrong


# ---- read once


@dataclass(frozen=True)
class PictureStore:
    """Pictures of one size, mapped into memory."""

    pixels_NHWC: NDArray[np.uint8]
    labels: tuple[str, ...]
    names: tuple[str, ...] | None
    apart_N: NDArray[np.bool_] | None
    hash: str


def store_pictures(
    path: Path, processor: ImageProcessor, folder: Path, *, progress: bool | None = None
) -> PictureStore:
    """All pictures as `processor` fits them, from `folder` where they are there already, and else read and put there.

    Args:
        path: a folder, or an .npz file.
        processor: one that brings every picture to one size.
        folder: where the result is kept.
        progress: show a bar on standard error; None is when a person is watching.

    Raises:
        ClearheadError: a picture can't be read, or the folder can't be written.
    """
    pictures = find_pictures(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hashes = file_hashes(Corpus(path=str(path)), pictures.files, folder)
    except OSError as problem:
        raise ClearheadError(f"{folder} can't be written: {problem.strerror or problem}") from problem
    fits = [asdict(processor.resize) if processor.resize else None, processor.crop, processor.channels]
    key = hash_of([VERSION, {name: hashed for name, (*_, hashed) in hashes.items()}, fits])
    inside = folder / f"pictures-{key[:16]}"
    if not inside.is_dir():
        with replacing(inside) as temporary:
            temporary.mkdir()
            _read_all(pictures, processor, temporary / PIXELS, progress)
            np.save(temporary / LABELS, np.array(pictures.labels, np.str_))
            index = {"hash": key, "names": pictures.names, "apart": pictures.apart}
            (temporary / INDEX).write_text(json.dumps(index), encoding="utf-8")
    return _open(inside)


def _read_all(pictures: Pictures, processor: ImageProcessor, path: Path, progress: bool | None) -> None:
    """Write the pixels of all pictures. Decoding and resizing let go of Python's lock, so threads do it together."""
    assert processor.size is not None
    n = len(pictures.labels)
    pixels_NHWC = np.lib.format.open_memmap(path, "w+", np.uint8, (n, *processor.size, processor.channels))
    wrong: list[str] = []

    def work(first: int, tell: Callable[[int], object]) -> None:
        stop = min(first + AT_ONCE, n)
        pixels, problems = pictures.read(first, stop, processor)
        wrong.extend(problems)
        if not problems:
            pixels_NHWC[first:stop] = np.stack(pixels)
        tell(stop - first)

    with progress_bar("reading pictures", n, progress) as tell, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(lambda first: work(first, tell), range(0, n, AT_ONCE)))
    if wrong:
        more = f" (and {len(wrong) - 3:,} more)" if len(wrong) > 3 else ""
        raise ClearheadError(f"{'; '.join(sorted(wrong)[:3])}{more}; mend or remove what can't be read")
    pixels_NHWC.flush()


def _open(folder: Path) -> PictureStore:
    try:
        index = json.loads((folder / INDEX).read_bytes())
        pixels_NHWC = np.load(folder / PIXELS, mmap_mode="r", allow_pickle=False)
        labels = tuple(np.load(folder / LABELS, allow_pickle=False).tolist())
        if len(labels) != len(pixels_NHWC):
            raise ValueError(f"{len(pixels_NHWC)} pictures and {len(labels)} labels")
    except (OSError, EOFError, ValueError, KeyError) as problem:
        raise ClearheadError(f"{folder} is broken ({problem}); delete it, and it is made anew") from problem
    names = None if index["names"] is None else tuple(index["names"])
    apart_N = None if index["apart"] is None else np.array(index["apart"], np.bool_)
    return PictureStore(pixels_NHWC, labels, names, apart_N, index["hash"])
