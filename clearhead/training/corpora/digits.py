"""Digits written by hand by 13 people, 8 x 8 pixels of 17 greys (Alpaydin and Kaynak 1998): the 1,797 that come with
scikit-learn, in its order. What one person wrote stands together, so the last ones are by others than the first.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np

from clearhead.errors import ClearheadError
from clearhead.training.data.pictures import ARRAYS


def gather(folder: Path, say: Callable[[str], None]) -> None:
    """Write the pictures to `folder`.

    Raises:
        ClearheadError: scikit-learn is not installed.
    """
    if importlib.util.find_spec("sklearn") is None:
        raise ClearheadError('the digits come with scikit-learn. Run: pip install "clearhead[train]"')
    found = importlib.import_module("sklearn.datasets").load_digits()
    images_NHW = np.rint(found.images * (255 / 16)).astype(np.uint8)
    np.savez(folder / ARRAYS, images=images_NHW, labels=found.target.astype(np.int64))
