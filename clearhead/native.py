"""C for this very processor: compiled when it is first wanted, kept, and done without where there is no compiler.

Everything here has a plain form in torch beside it, which is the truth and is used instead.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache, partial
from pathlib import Path

from clearhead.files import into_place

OFF = "CLEARHEAD_NATIVE"
"""Set to 0, nothing is compiled, and the plain forms are used."""

FAST = ("-O3", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")
"""`contract=off`: a product and a sum are rounded as torch rounds them, so that unpacked weights have every bit."""

# Threads are torch's own where its library is found by name: two sets of them would wait for each other's turn.
ATTEMPTS = (
    (("-march=native", "-fopenmp"), ()),
    (("-march=native", "-fopenmp"), ("-fopenmp",)),
    (("-mcpu=native",), ()),
    ((), ()),
)
"""Ways to compile and to link, the fastest first."""


@cache
def library(source: Path, *definitions: str) -> ctypes.CDLL | None:
    """The functions of a C file, for this processor; None where they can't be had. `definitions`: names it is told."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if os.environ.get(OFF) == "0" or compiler is None:
        return None
    code = source.read_bytes()
    for native_flags, link_flags in ATTEMPTS:
        compile_flags = (*native_flags, *(f"-D{name}" for name in definitions))
        try:
            made = _folder() / f"{source.stem}-{_key(code, compiler, compile_flags, link_flags)}.so"
            if not made.exists():
                made.parent.mkdir(parents=True, exist_ok=True)
                into_place(made, partial(_compile, compiler, source, (compile_flags, link_flags)))
            return ctypes.CDLL(str(made))
        except (OSError, RuntimeError, subprocess.SubprocessError):  # no home: RuntimeError
            continue
    return None


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearhead" / "native"


def _key(code: bytes, compiler: str, compile_flags: tuple[str, ...], link_flags: tuple[str, ...]) -> str:
    """What the result depends on: the code, the compiler, and the processor that `native` stands for."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        processor = platform.processor()
    seal = Path(shutil.which(compiler) or compiler).resolve()
    age = seal.stat().st_mtime_ns if seal.exists() else 0
    parts = (code, f"{seal} {age} {platform.machine()} {processor} {FAST} {compile_flags} {link_flags}".encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _compile(compiler: str, source: Path, flags: tuple[tuple[str, ...], tuple[str, ...]], to: Path) -> None:
    """Compiled and linked in two steps: linked without -fopenmp, the names of its functions are left to be found among
    those that torch brought.
    """
    compile_flags, link_flags = flags
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.o"
        for step in (
            [compiler, *FAST, *compile_flags, "-c", str(source), "-o", str(part)],
            [compiler, "-shared", *link_flags, str(part), "-o", str(to), "-lm"],
        ):
            subprocess.run(step, check=True, capture_output=True, timeout=120)
