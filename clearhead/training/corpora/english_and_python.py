"""The English corpus, and as much Python: the standard library of the Python that runs this, without its tests.

What another version of Python has is another text, so its version is part of the corpus's.
"""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from clearhead.training.corpora import located

NO_PART = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
"""Folders of what was installed beside the library, and of its tests: twenty million bytes much alike."""


def gather(folder: Path, say: Callable[[str], None]) -> None:
    """Write the texts to `folder`: sotu and moby-dick as in corpus:english, and python/ast.py, ...

    Raises:
        ClearheadError: the English can't be had.
    """
    shutil.copytree(located("corpus:english"), folder, dirs_exist_ok=True)
    say("copying the standard library's source")
    for path, name in library():
        (folder / "python" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / "python" / name)


def library() -> Iterator[tuple[Path, Path]]:
    """The files, and their paths in the library; those that are no UTF-8 are there to test with."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if NO_PART & set(name.parts[:-1]):
            continue
        try:
            path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue
        yield path, name
