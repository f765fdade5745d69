"""Pictures and sounds that a browser sent, or that the Studio draws itself: decoded within limits, kept in memory."""

from __future__ import annotations

import hashlib
import io
import wave
from collections import OrderedDict
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.audio import mono
from clearhead.inputs.open_image import open_image
from clearhead.studio.explore.samples import PICTURES, SOUNDS, sample_picture, sample_sound

MAX_UPLOAD = 2 << 20
"""Bytes of one file."""
MAX_PIXELS = 24_000_000
"""Of a picture as its header states them: nothing larger is decoded."""
LONG_SIDE = 1024
"""Larger pictures are kept at this size: no model here reads more of one."""
MAX_SECONDS = 60
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
KEPT = 16


class Uploads:
    """The last few files, by the hash of what was in them."""

    def __init__(self) -> None:
        self._pictures: OrderedDict[str, Image.Image] = OrderedDict()
        self._sounds: OrderedDict[str, tuple[NDArray[np.float32], int]] = OrderedDict()
        self._lock = Lock()

    def add_picture(self, data: bytes) -> str:
        """Decode a picture and keep it; gives its name.

        Raises:
            UsageError: it is too large, or none that can be read.
        """
        _check_size(data)
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise UsageError(
                        f"the picture has {image.width:,} x {image.height:,} pixels, and at most "
                        f"{MAX_PIXELS / 1e6:.0f} million are read; make it smaller"
                    )
                image.load()
                picture = open_image(image)
        except UnidentifiedImageError:
            raise UsageError(f"this is no picture that can be read; {', '.join(FORMATS)} are") from None
        except (OSError, ValueError, SyntaxError, EOFError, MemoryError, Image.DecompressionBombError) as problem:
            raise UsageError(f"the picture can't be read: {problem}") from None
        except ClearheadError as problem:
            raise UsageError(str(problem)) from None
        picture.thumbnail((LONG_SIDE, LONG_SIDE))
        return self._keep(self._pictures, data, picture)

    def hold_picture(self, picture: Image.Image) -> str:
        """Keep a picture that Python has; gives its name."""
        small = picture.copy()
        small.thumbnail((LONG_SIDE, LONG_SIDE))
        return self._keep(self._pictures, repr((small.mode, small.size)).encode() + small.tobytes(), small)

    def add_sound(self, data: bytes) -> str:
        """Read a WAV file and keep it; gives its name.

        Raises:
            UsageError: it is too large, too long, or no WAV file of whole numbers.
        """
        _check_size(data)
        try:
            with wave.open(io.BytesIO(data), "rb") as file:
                width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
                if rate < 1 or file.getnframes() > MAX_SECONDS * rate:
                    raise UsageError(f"the sound is longer than {MAX_SECONDS} s; give a shorter piece of it")
                raw = file.readframes(file.getnframes())
        except (wave.Error, EOFError, ValueError) as problem:
            raise UsageError(f"this is no WAV file that can be read ({problem or 'it is cut short'})") from None
        if width not in (1, 2, 4) or channels not in (1, 2):
            raise UsageError("the sound must have one or two channels of 8, 16 or 32 bits a sample")
        if width == 1:
            samples: NDArray[Any] = (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128
        else:
            samples = np.frombuffer(raw[: len(raw) // width * width], f"<i{width}")
        samples = samples[: len(samples) // channels * channels].reshape(-1, channels)
        if not len(samples):
            raise UsageError("the sound is empty")
        return self._keep(self._sounds, data, (mono(samples), rate))

    def picture(self, name: str) -> Image.Image:
        """A kept picture, or one of the samples.

        Raises:
            UsageError: there is none of that name.
        """
        if name in PICTURES:
            return sample_picture(name)
        picture: Image.Image = _found(self._pictures, name, "picture")
        return picture

    def sound(self, name: str, rate: int) -> tuple[NDArray[np.float32], int]:
        """The samples of a kept sound, or of one of the samples, and how many there are a second: `rate` of them.

        Raises:
            UsageError: there is none of that name.
        """
        if name in SOUNDS:
            return sample_sound(name, rate), rate
        samples, own = _found(self._sounds, name, "sound")
        if own == rate:
            return samples, rate
        # Straight lines between samples: good enough to be heard, and no filter has to be installed.
        n = max(1, round(len(samples) * rate / own))
        places = np.arange(n) * (own / rate)
        return np.interp(places, np.arange(len(samples)), samples).astype(np.float32), rate

    def _keep(self, kept: OrderedDict[str, Any], data: bytes, value: Any) -> str:
        name = hashlib.sha256(data).hexdigest()
        with self._lock:
            kept[name] = value
            kept.move_to_end(name)
            while len(kept) > KEPT:
                kept.popitem(last=False)
        return name


def _check_size(data: bytes) -> None:
    if len(data) > MAX_UPLOAD:
        raise UsageError(f"the file has {len(data):,} bytes, and at most {MAX_UPLOAD:,} are read")


def _found(kept: OrderedDict[str, Any], name: str, what: str) -> Any:
    value = kept.get(name)
    if value is None:
        raise UsageError(f"the Studio does not hold this {what} any more; give it again")
    return value
