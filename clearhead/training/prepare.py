"""From a config to the data that a run is made of."""

from __future__ import annotations

from pathlib import Path

from clearhead.errors import ClearheadError
from clearhead.training.config import DataConfig, PicturesConfig, TrainConfig
from clearhead.training.prepared import Prepared

DATA = "data"
"""In the folder of a run: its tokenizer, and data made ready."""


def prepare(config: TrainConfig, folder: Path, *, quiet: bool = False) -> Prepared:
    """Find the data of a run and make it ready, or find it made in `folder`."""
    data = config.data
    place = data.corpus.path if isinstance(data, DataConfig) else data.path
    if folder.resolve().is_relative_to(Path(place).expanduser().resolve()):
        raise ClearheadError(
            f"{folder} lies in the folder of the data, and would be read as data; name another (--out)"
        )
    inside = folder / DATA
    if isinstance(data, DataConfig):
        from clearhead.training.prepare_texts import prepare_texts

        return prepare_texts(config, data, inside, quiet=quiet)
    if isinstance(data, PicturesConfig):
        from clearhead.training.prepare_pictures import prepare_pictures

        return prepare_pictures(config, data, inside, quiet=quiet)
    from clearhead.training.prepare_sounds import prepare_sounds

    return prepare_sounds(config, data, inside, quiet=quiet)
