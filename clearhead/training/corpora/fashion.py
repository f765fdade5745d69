"""Pictures of clothes, 28 x 28 greys, ten kinds (Xiao 2017, Fashion-MNIST): 60,000 to learn from and 10,000 to measure
on, which Debian has as the package dataset-fashion-mnist.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import ClearheadError
from clearhead.training.data.pictures import ARRAYS

PLACE = Path("/usr/share/datasets/fashion-mnist")
PARTS = (("train", "train"), ("t10k", "test"))
"""What the files of a part begin with, and what it is called here."""
NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def gather(folder: Path, say: Callable[[str], None]) -> None:
    """Write the pictures to `folder`.

    Raises:
        ClearheadError: the package is not installed, or a file of it can't be read.
    """
    if not PLACE.is_dir():
        raise ClearheadError(
            f"there is no {PLACE}: the pictures of clothes come with a package of Debian's. Run: "
            "apt-get install dataset-fashion-mnist"
        )
    images = [read_idx(PLACE / f"{begins}-images-idx3-ubyte.gz") for begins, _ in PARTS]
    labels = [read_idx(PLACE / f"{begins}-labels-idx1-ubyte.gz") for begins, _ in PARTS]
    np.savez(
        folder / ARRAYS,
        images=np.concatenate(images),
        labels=np.concatenate(labels),
        names=np.array(NAMES),
        split=np.repeat([name for _, name in PARTS], [len(part) for part in labels]),
    )


def read_idx(path: Path) -> NDArray[Any]:
    """An array of bytes in the format of MNIST's files: two zeros, the kind (8), the number of dimensions, each of them
    in four bytes, largest first; then the bytes.

    Raises:
        ClearheadError: the file is none, or is cut short.
    """
    try:
        content = gzip.decompress(path.read_bytes())
        zeros, kind, n_dims = struct.unpack(">HBB", content[:4])
        shape = struct.unpack(f">{n_dims}I", content[4 : 4 + 4 * n_dims])
        if (zeros, kind) != (0, 8):
            raise ValueError("it does not begin as such files do")
        return np.frombuffer(content, np.uint8, offset=4 + 4 * n_dims).reshape(shape)
    except (OSError, EOFError, ValueError, struct.error, zlib.error) as problem:
        raise ClearheadError(
            f"{path} can't be read ({problem}). Run: apt-get install --reinstall dataset-fashion-mnist"
        ) from problem
