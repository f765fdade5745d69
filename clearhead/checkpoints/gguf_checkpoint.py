"""A GGUF file as a checkpoint: its metadata is the config, its tensors are dequantised as they are read."""

from __future__ import annotations

import re
from pathlib import Path

from torch import Tensor

from clearhead.checkpoints.checkpoint import Checkpoint, TensorInfo
from clearhead.checkpoints.gguf_header import GGUFEntry, GGUFHeader, read_header
from clearhead.checkpoints.gguf_quants import dequantise
from clearhead.checkpoints.mapped import DOWNLOAD_AGAIN, MappedFile
from clearhead.errors import ClearheadError
from clearhead.ops.blocks import scales

SPLIT_NAME = re.compile(r"(.*-)(\d{5})-of-(\d{5})\.gguf")


class GGUFCheckpoint(Checkpoint):
    """One GGUF file, or all parts of a split one (give the first). `config` is the metadata as it stands.

    Shapes are in torch's order, [out, in]; names and the order of rows are the file's own.
    """

    format = "gguf"

    def __init__(self, path: Path) -> None:
        self._files: list[MappedFile] = []
        self._places: dict[str, tuple[MappedFile, GGUFEntry]] = {}
        tensors: dict[str, TensorInfo] = {}
        try:
            header = self._add(path, tensors)
            for part in _other_parts(path, header):
                self._add(part, tensors)
        except BaseException:
            self.close()
            raise
        super().__init__(path, header.metadata, tensors)

    def _add(self, path: Path, tensors: dict[str, TensorInfo]) -> GGUFHeader:
        file = MappedFile(path)
        self._files.append(file)
        header = read_header(file)
        for name, entry in header.entries.items():
            if name in tensors:
                raise ClearheadError(f"{path}: the tensor {name!r} is also in {tensors[name].file}")
            self._places[name] = (file, entry)
            dtype = entry.type.dtype or entry.type.name
            tensors[name] = TensorInfo(name=name, shape=entry.shape, dtype=dtype, file=str(path))
        return header

    def _values(self, name: str, begin: int, end: int) -> Tensor:
        file, entry = self._places[name]
        raw = file.bytes_at(*_span(entry, begin, end))
        if entry.type.dtype is not None:
            return raw.view(entry.type.dtype)
        return dequantise(raw.view(1, -1), entry.type.name, end - begin).view(-1)

    def blocks(self, name: str) -> Tensor:
        """A quantised tensor as it lies in the file, (..., bytes a row) of uint8: mapped memory, not to be written to.

        Raises:
            ClearheadError: one of its scales is not a number.
        """
        file, entry = self._places[name]
        raw = file.lend(entry.begin, entry.end)
        if not all(bool(scale.isfinite().all()) for scale in scales(raw, entry.type.name)):
            raise ClearheadError(f"{file.path}: the weights of {name!r} hold NaN or infinity. {DOWNLOAD_AGAIN}")
        return raw.view(*entry.shape[:-1], -1)

    def _release(self, name: str, begin: int, end: int) -> None:
        file, entry = self._places[name]
        file.release(*_span(entry, begin, end))

    def close(self) -> None:
        """Unmap the files."""
        for file in self._files:
            file.close()


def _span(entry: GGUFEntry, begin: int, end: int) -> tuple[int, int]:
    """The bytes of elements [begin, end), both on a block."""
    block, nbytes = entry.type.block, entry.type.nbytes
    return entry.begin + begin // block * nbytes, entry.begin + end // block * nbytes


def _other_parts(path: Path, header: GGUFHeader) -> list[Path]:
    """The further files of a split GGUF. Raises ClearheadError when one is missing or `path` isn't the first."""
    count = header.metadata.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return []
    name = SPLIT_NAME.fullmatch(path.name)
    if not name or int(name[3]) != count:
        raise ClearheadError(
            f"{path} is one of {count} parts of a split GGUF, but its name does not end in -00001-of-{count:05}.gguf, "
            "so the others can't be found. Give the files their published names."
        )
    if header.metadata.get("split.no", 0) != 0 or int(name[2]) != 1:
        raise ClearheadError(f"{path} is not the first part of a split GGUF. Give {name[1]}00001-of-{name[3]}.gguf")
    parts = [path.with_name(f"{name[1]}{number:05}-of-{name[3]}.gguf") for number in range(2, count + 1)]
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        raise ClearheadError(f"{path} lacks {len(missing)} of its {count} parts: {', '.join(missing[:5])}")
    return parts
