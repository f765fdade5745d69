"""Saving in the Hub's layout, so that a folder is either the old one or the new one, never half of each file.

Everything is written under temporary names first. A new folder then takes its name in one step; in an existing one each
file replaces its predecessor in one step, weights before config.json.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.checkpoints.folder import INDEX, SINGLE
from clearhead.errors import ClearheadError

CONFIG = "config.json"
POOLED = re.compile(r"\w+_Pooling/config\.json")
"""The one file of a folder inside: how a sentence encoder pools."""
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
BESIDE_WEIGHTS = frozenset(
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json merges.txt "
    "tokenizer.model vocab.txt generation_config.json chat_template.jinja".split()
)
"""Files that are read as part of a model."""
MAX_SHARD_BYTES = 5 * 10**9


def write_checkpoint(
    folder: str | Path,
    config: Mapping[str, Any],
    tensors: Iterable[tuple[str, Tensor]],
    sidecar_files: Mapping[str, Path | bytes] | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write config.json, weights and sidecar files. Names must be unique, and a tied tensor given once.

    Tensors are asked for one by one, and those of one file (at most `max_shard_bytes`) are in memory at a time.
    Raises ClearheadError when the folder can't be written; it is then as it was.
    """
    folder = Path(folder).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ClearheadError(f"{folder} is a file; give a folder to save in")
    # Inside the folder when there is one: beside it may be another disk.
    temporary = (folder if folder.exists() else folder.parent) / f".{folder.name}.{secrets.token_hex(4)}.tmp"
    try:
        temporary.mkdir(parents=True)
        text = json.dumps(dict(config), indent=2, ensure_ascii=False) + "\n"
        (temporary / "config.json").write_text(text, encoding="utf-8")
        weights = _write_weights(temporary, tensors, max_shard_bytes)
        for name, content in (sidecar_files or {}).items():
            _write_sidecar(temporary / _plain(name), content)
        _put_in_place(temporary, folder, weights)
    except OSError as problem:
        raise ClearheadError(f"{folder} can't be written: {problem.strerror or problem}") from problem
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_weights(folder: Path, tensors: Iterable[tuple[str, Tensor]], limit: int) -> set[str]:
    """Fill one file after the other; only at the end is it known how many there are, and so what they are called."""
    shard: dict[str, Tensor] = {}
    size = total = 0
    files: list[tuple[Path, list[str]]] = []
    seen: set[str] = set()

    def flush() -> None:
        path = folder / f"part-{len(files)}"
        _save(shard, path)
        path.chmod((folder / "config.json").stat().st_mode)  # the library lets no one else read it
        files.append((path, list(shard)))
        shard.clear()

    for name, tensor in tensors:
        if name in seen:
            raise ClearheadError(f"two tensors to save are called {name!r}")
        seen.add(name)
        if shard and size + tensor.nbytes > limit:
            flush()
            size = 0
        shard[name] = tensor.detach().cpu().contiguous()
        size += tensor.nbytes
        total += tensor.nbytes
    flush()
    if len(files) == 1:
        files[0][0].rename(folder / SINGLE)
        return {SINGLE}
    names: dict[str, str] = {}
    for number, (path, inside) in enumerate(files, 1):
        final = f"model-{number:05}-of-{len(files):05}.safetensors"
        path.rename(folder / final)
        names.update(dict.fromkeys(inside, final))
    index = {"metadata": {"total_size": total}, "weight_map": names}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return {INDEX, *names.values()}


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as problem:
        raise ClearheadError(f"{path.name} of the weights can't be written in {path.parent.parent}: {problem}") from (
            problem
        )


def _write_sidecar(path: Path, content: Path | bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        shutil.copyfile(content, path)


def _plain(name: str) -> str:
    if POOLED.fullmatch(name):
        return name
    if Path(name).name != name or name in ("", ".", "..", CONFIG):
        raise ClearheadError(f"{name!r} can't be the name of a file saved beside the weights")
    return name


def _put_in_place(temporary: Path, folder: Path, weights: set[str]) -> None:
    if not folder.exists():
        temporary.rename(folder)
        return
    names = sorted(path.relative_to(temporary).as_posix() for path in temporary.rglob("*") if path.is_file())
    for name in sorted(names, key=lambda name: (name == CONFIG, name not in weights, name == INDEX)):
        (folder / name).parent.mkdir(exist_ok=True)
        (temporary / name).replace(folder / name)
    # What the old model had and the new one does not replace would be read as the new one's.
    for path in folder.iterdir():
        old_weights = path.name in (SINGLE, INDEX) or SHARD.fullmatch(path.name)
        if path.name not in names and (old_weights or path.name in BESIDE_WEIGHTS):
            path.unlink()
