"""A prefix as a file: safetensors with the tokens, what every layer remembers, and which model it is good for.

It is a thing to throw away: made by another version, for another model or damaged, it is refused, and made anew.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import ClearheadError, UsageError
from clearhead.files import into_place
from clearhead.generation.fingerprint import digest, fingerprint
from clearhead.generation.prefix import Prefix, read_prefix
from clearhead.generation.prefix_memory import Part, Remembered

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

FORMAT = "clearhead prefix 1"
TOKENS = "tokens"
BESIDE = "|"
"""Stands between a layer's address and the name of its tensor."""


def save_prefix(prefix: Prefix, path: Path) -> None:
    """As `Prefix.save`."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {TOKENS: torch.tensor(prefix.tokens)}
    for address, part in prefix.memory.parts.items():
        tensors |= {f"{address}{BESIDE}{name}": x.cpu().contiguous() for name, x in part.tensors.items()}
    about = {
        "text": prefix.text,
        "model": prefix.model,
        "n": prefix.memory.n,
        "read_as": prefix.memory.read_as,
        "keeps_tokens": prefix.memory.keeps_tokens,
        "parts": {address: [part.first, part.least] for address, part in prefix.memory.parts.items()},
    }
    written = json.dumps(about, ensure_ascii=False)
    label = {
        "format": FORMAT,
        "clearhead": _version(),
        "torch": torch.__version__,
        "about": written,
        "content": digest(sorted(tensors.items()), written),
    }
    try:
        into_place(path, lambda temporary: _write(save_file, tensors, temporary, label))
    except (OSError, SafetensorError) as problem:
        raise ClearheadError(f"{path} can't be written: {getattr(problem, 'strerror', None) or problem}") from problem


def _write(save_file: Any, tensors: dict[str, Tensor], path: Path, label: dict[str, str]) -> None:
    # Nobody else may read what it says, whatever the library that fills it does about that.
    path.touch(mode=0o600)
    save_file(tensors, path, metadata=label)
    path.chmod(0o600)


def load_prefix(path: str | os.PathLike[str], model: Transformer) -> Prefix:
    """The prefix in a file that `Prefix.save` wrote.

    Raises:
        ClearheadError: there is no such file, it is damaged or none of these, another version of clearhead wrote it,
            or another model (or this one with other weights, or of another dtype) read it.
    """
    path = Path(path).expanduser()
    label, tensors = _read(path)
    anew = "delete it, and it can be made anew"
    if not label.get("format", "").startswith("clearhead prefix"):
        raise ClearheadError(f"{path} is not a prefix; give a file that Prefix.save or --prefix wrote")
    if label["format"] != FORMAT or label.get("clearhead") != _version():
        made = f"{label['format']} by clearhead {label.get('clearhead')}"
        raise ClearheadError(f"{path} was written as {made}, and this is {FORMAT} of clearhead {_version()}; {anew}")
    if digest(sorted(tensors.items()), label.get("about", "")) != label.get("content"):
        raise ClearheadError(f"{path} is damaged: its content is not what was written; {anew}")
    about = json.loads(label["about"])
    if about["model"] != fingerprint(model):
        raise ClearheadError(
            f"{path} was read by another model, or by this one with other weights or of another dtype; load that, "
            f"give another file, or {anew}"
        )
    tensors = {name: x if name == TOKENS else x.to(model.device) for name, x in tensors.items()}
    parts = {address: Part(_of(tensors, address), *places) for address, places in about["parts"].items()}
    memory = Remembered(about["n"], parts, about["read_as"], about["keeps_tokens"])
    return Prefix(tokens=tensors[TOKENS].tolist(), text=about["text"], memory=memory, model=about["model"])


def prefix_at(path: str | os.PathLike[str], model: Transformer, text: str | None = None) -> Prefix:
    """The prefix that a file holds, of a text. With `text` it is read and saved when there is no such file, and read on
    when the file holds a beginning of it.

    Raises:
        UsageError: the file holds another text, or token ids without one; or there is neither file nor text.
        ClearheadError: as `load_prefix`, `read_prefix` and `Prefix.save`.
    """
    path = Path(path).expanduser()
    if not path.exists() and text is None:
        raise UsageError(f"there is no {path}; say what text it is to hold")
    prefix = load_prefix(path, model) if path.exists() else None
    if prefix is not None:
        if prefix.text is None:
            raise UsageError(f"{path} holds token ids, and no text that a prompt could stand behind; give another file")
        if text is None or text == prefix.text:
            return prefix
        if not text.startswith(prefix.text):
            raise UsageError(
                f"{path} holds another text, which begins {prefix.text[:40]!r}; give another file, or delete this one"
            )
    assert text is not None
    prefix = read_prefix(model, text, prefix=prefix)
    prefix.save(path)
    return prefix


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The label and the tensors of a whole file."""
    from safetensors import SafetensorError, safe_open

    from clearhead.checkpoints.safetensors_file import SafetensorsFile

    # It says what is wrong with a file that is cut short or something else.
    file = SafetensorsFile(path)
    try:
        tensors = {
            name: file.values(entry, 0, torch.Size(entry.shape).numel()).clone().view(entry.shape)
            for name, entry in file.entries.items()
        }
    finally:
        file.close()
    try:
        with safe_open(path, framework="pt") as opened:
            return dict(opened.metadata() or {}), tensors
    except SafetensorError as problem:
        raise ClearheadError(f"{path} can't be read: {problem}") from problem


def _of(tensors: dict[str, Tensor], address: str) -> dict[str, Tensor]:
    """The tensors of one layer, by their names in it."""
    start = address + BESIDE
    return {name.removeprefix(start): x for name, x in tensors.items() if name.startswith(start)}


def _version() -> str:
    try:
        return version("clearhead")
    except PackageNotFoundError:
        return "not installed"
