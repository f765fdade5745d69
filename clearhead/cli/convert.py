"""`clearhead convert SOURCE FOLDER`: the same model as a folder in the Hub's layout."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from clearhead.cli.options import Dtype, Loading, OptionalInt, Source
from clearhead.errors import ClearheadError


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model."""
    folder: Annotated[Positional[str], tyro.conf.arg(metavar="FOLDER")]
    """Where to write config.json, the weights and the tokenizer's files. It must be new, or empty."""
    dtype: Dtype = None
    """What the weights are turned into; as the file has them when not given."""
    kv_heads: OptionalInt = None
    """Make so many key-value heads, each the mean of a group of the model's: 1 is multi-query attention. The model is
    worse for it until it is trained on."""
    json: bool = False
    """Print what was written as JSON."""


def run(options: Options) -> None:
    from clearhead.cli import console

    folder = Path(options.folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ClearheadError(f"{folder} is already there and not an empty folder: name a new one, or empty it first")
    model = console.load(options.source, Loading(dtype=options.dtype))

    import clearhead

    if options.kv_heads is not None:
        from clearhead.model.kv_heads import grouped

        before, model = model, grouped(model, options.kv_heads)
        if model.config == before.config:
            raise ClearheadError(f"the model has {options.kv_heads} key-value heads already: leave --kv-heads out")
    with console.busy(f"writing {folder}"):
        clearhead.save(model, folder)
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    if options.json:
        console.print_json({"folder": str(folder), "files": files})
        return
    width = max(map(len, files))
    for name, size in files.items():
        print(f"{name:<{width}}  {size:>13,} bytes")
    print(f"wrote {options.source} as {folder}", file=sys.stderr)
