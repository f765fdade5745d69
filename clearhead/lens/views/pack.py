"""Many numbers in a page: packed small here, unpacked one map at a time by `unpack` in pages/frame.html."""

from __future__ import annotations

import base64
import zlib

import numpy as np
from torch import Tensor

from clearhead.lens.views.scale import Kind

TEN_THOUSANDTHS = 10_000


def packed(values: Tensor, kind: Kind) -> str:
    """Base64 of the deflated numbers. Weights are whole ten-thousandths, the four places that are shown, in two bytes;
    all else is float32, bit for bit. All first bytes come first, then all second ones and so on: most first bytes of
    weights are zero.
    """
    numbers = values.detach().cpu().double().numpy()
    if kind == "share":
        cells = np.rint(np.nan_to_num(numbers) * TEN_THOUSANDTHS).astype(">u2")
    else:
        cells = numbers.astype(">f4")
    planes = np.ascontiguousarray(cells).view(np.uint8).reshape(cells.size, cells.itemsize).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")
