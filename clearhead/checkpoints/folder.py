"""A folder in the Hub's layout: config.json, weights in one file or several, and the tokenizer's files.

safetensors is taken wherever it exists; PyTorch's pickles only where it doesn't.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.checkpoints import pickles
from clearhead.checkpoints.checkpoint import Checkpoint, TensorInfo
from clearhead.checkpoints.fp8 import FP8
from clearhead.checkpoints.mapped import DOWNLOAD_AGAIN, LFS_POINTER, refuse_lfs_pointer
from clearhead.checkpoints.mxfp4 import MXFP4
from clearhead.checkpoints.safetensors_file import Entry, SafetensorsFile
from clearhead.errors import ClearheadError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
SIDECARS = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
"""What is carried along on saving, byte for byte: all that is neither weights nor config.json."""
POOLING = "*_Pooling/config.json"
"""How a sentence encoder makes one vector of many; its modules.json names the folder."""


class SafetensorsFolder(Checkpoint):
    """Weights in one or several .safetensors files, each checked in full on opening."""

    format = "safetensors"

    def __init__(self, where: Path, config: dict[str, Any], files: list[SafetensorsFile]) -> None:
        self._files = files
        self._places: dict[str, tuple[SafetensorsFile, Entry]] = {}
        tensors = {}
        for file in files:
            for name, entry in file.entries.items():
                self._places[name] = (file, entry)
                tensors[name] = TensorInfo(name=name, shape=entry.shape, dtype=entry.dtype, file=str(file.path))
        super().__init__(where, config, tensors)

    def _values(self, name: str, begin: int, end: int) -> Tensor:
        file, entry = self._places[name]
        return file.values(entry, begin, end)

    def _release(self, name: str, begin: int, end: int) -> None:
        file, entry = self._places[name]
        file.release(entry, begin, end)

    def close(self) -> None:
        """Unmap the files."""
        for file in self._files:
            file.close()


class PickleFolder(Checkpoint):
    """Weights in one or several .bin files, read without running any code in them."""

    format = "pickle"

    def __init__(self, where: Path, config: dict[str, Any], paths: list[Path]) -> None:
        self._weights: dict[str, Tensor] = {}
        self._ranges: list[tuple[int, int]] = []
        tensors = {}
        for path in paths:
            for name, tensor in pickles.load_pickle(path).items():
                self._weights[name] = tensor
                tensors[name] = TensorInfo(name=name, shape=tuple(tensor.shape), dtype=tensor.dtype, file=str(path))
            self._ranges += pickles.mapped_ranges(path)
        super().__init__(where, config, tensors)

    def _values(self, name: str, begin: int, end: int) -> Tensor:
        return self._weights[name].detach().reshape(-1)[begin:end]

    def _release(self, name: str, begin: int, end: int) -> None:
        if self._weights[name].is_contiguous():
            pickles.release(self._values(name, begin, end), self._ranges)

    def close(self) -> None:
        """Let go of the tensors, and of the mapped files with them."""
        self._weights.clear()
        self._ranges.clear()


def open_folder(folder: Path, weights: Path | None = None) -> Checkpoint:
    """Open a folder in the Hub's layout. Reads headers only. Raises ClearheadError.

    weights: a .safetensors file that takes the place of the folder's own.
    """
    config_path = folder / "config.json"
    if not config_path.exists():
        raise ClearheadError(f"{folder} has no config.json, so it is no model{what_else(folder)}")
    config = read_json(config_path)
    checkpoint = _unpacking(_open_weights(folder, config, weights))
    generation = folder / "generation_config.json"
    checkpoint.generation_config = read_json(generation) if generation.exists() else None
    checkpoint.sidecar_files = sidecar_files(folder)
    return checkpoint


def _unpacking(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as one of plain tensors, where its config names a way of packing that is understood."""
    said: Any = checkpoint.config.get("quantization_config")
    method = said.get("quant_method") if isinstance(said, dict) else None
    ways = {way.method: way for way in (MXFP4, FP8)}
    return ways[method](checkpoint) if method in ways else checkpoint


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises ClearheadError."""
    try:
        data = path.read_bytes()
        refuse_lfs_pointer(path, data[: len(LFS_POINTER)])
        value = json.loads(data)
    except OSError as problem:
        raise ClearheadError(f"{path} can't be read: {problem.strerror or problem}") from problem
    except (ValueError, RecursionError) as problem:
        raise ClearheadError(f"{path} is not valid JSON: {problem}. {DOWNLOAD_AGAIN}") from problem
    if not isinstance(value, dict):
        raise ClearheadError(f"{path} holds a {type(value).__name__}, expected a JSON object. {DOWNLOAD_AGAIN}")
    return value


def sidecar_files(folder: Path) -> dict[str, Path]:
    """The tokenizer's and other small files of a folder, by name."""
    found = sorted(path for pattern in SIDECARS for path in folder.glob(pattern) if path.is_file())
    files = {path.name: path for path in found if path.name != "config.json" and not is_weights(path.name)}
    return files | {path.relative_to(folder).as_posix(): path for path in sorted(folder.glob(POOLING))}


def is_weights(name: str) -> bool:
    """Whether a file's name says that it holds a model's weights or lists them."""
    return name.endswith((".safetensors", ".bin", ".gguf", ".index.json", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"))


def _open_weights(folder: Path, config: dict[str, Any], weights: Path | None) -> Checkpoint:
    if weights is not None or (folder / SINGLE).exists():
        return SafetensorsFolder(folder, config, [SafetensorsFile(weights or folder / SINGLE)])
    if (folder / INDEX).exists():
        return _open_shards(folder, config)
    if (folder / PICKLE).exists():
        return PickleFolder(folder, config, [folder / PICKLE])
    if (folder / PICKLE_INDEX).exists():
        wanted = _shards(folder, PICKLE_INDEX)
        pickled = PickleFolder(folder, config, sorted(set(wanted.values())))
        _check_index(folder / PICKLE_INDEX, wanted, pickled)
        return pickled
    raise ClearheadError(f"{folder} has no weights: expected {SINGLE} or {INDEX}{what_else(folder)}")


def _open_shards(folder: Path, config: dict[str, Any]) -> Checkpoint:
    wanted = _shards(folder, INDEX)
    files: list[SafetensorsFile] = []
    try:
        for path in sorted(set(wanted.values())):
            files.append(SafetensorsFile(path))  # noqa: PERF401 (when one is refused, those before it are closed)
        checkpoint = SafetensorsFolder(folder, config, files)
        _check_index(folder / INDEX, wanted, checkpoint)
    except BaseException:
        for file in files:
            file.close()
        raise
    return checkpoint


def _shards(folder: Path, index: str) -> dict[str, Path]:
    """Where the index says each tensor is. All missing shards come in one error."""
    path = folder / index
    names = read_json(path).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(file, str) for file in names.values()):
        raise ClearheadError(f"{path} has no weight_map that gives each tensor's file. {DOWNLOAD_AGAIN}")
    strange = sorted({file for file in names.values() if Path(file).name != file or file in ("", ".", "..")})
    if strange:
        raise ClearheadError(f"{path} names files outside its folder: {', '.join(map(repr, strange))}")
    missing = sorted({file for file in names.values() if not (folder / file).exists()})
    if missing:
        raise ClearheadError(
            f"{folder} lacks {len(missing)} of {len(set(names.values()))} weight files that {index} lists: "
            f"{_few(missing)}. Download them again."
        )
    return {name: folder / file for name, file in names.items()}


def _check_index(index: Path, wanted: dict[str, Path], checkpoint: Checkpoint) -> None:
    """Every tensor must be in the file the index names. One that no index lists is left to the family to judge."""
    absent = [name for name, path in wanted.items() if name not in checkpoint.tensors]
    if absent:
        raise ClearheadError(
            f"{index} lists {len(absent)} tensors that their files don't hold: "
            f"{_few([f'{name} ({wanted[name].name})' for name in absent])}. Download the folder again."
        )
    moved = [name for name, path in wanted.items() if checkpoint.tensors[name].file != str(path)]
    if moved:
        found = [f"{name} (in {Path(checkpoint.tensors[name].file).name})" for name in moved]
        raise ClearheadError(f"{index} puts {len(moved)} tensors in another file than they are in: {_few(found)}")


def what_else(folder: Path) -> str:
    """What a folder has instead, as the end of an error message."""
    ggufs = sorted(path.name for path in folder.glob("*.gguf"))
    if ggufs:
        return f". It has GGUF files: give one of them by name, such as {folder / ggufs[0]}"
    inside = sorted(path.parent.name for path in folder.glob("*/config.json"))
    if inside:
        return f". Its folder {inside[0]} has one: did you mean {folder / inside[0]}?"
    names = sorted(path.name for path in folder.iterdir())
    return f". It has {_few(names)}" if names else ". It is empty"


def _few(names: Iterable[str], most: int = 5) -> str:
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
