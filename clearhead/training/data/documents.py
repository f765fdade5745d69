"""Documents from where people keep them: text files, folders, JSONL, CSV and TSV, Parquet, and data sets of the Hub.

A corpus is a list of sources (files, or tables), always in the same order, and a source is read whole or in parts, so
that several processes can share the work. A record knows its place in its source, by which it is named in messages and
held out or not, whatever stands around it.
"""

from __future__ import annotations

import csv
import difflib
import fnmatch
import functools
import hashlib
import importlib
import importlib.util
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clearhead.errors import ClearheadError, UsageError
from clearhead.training.corpora import located

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Share = float | str
"""Which documents are held out: about so many of them, or all of the files whose names match a pattern."""
Format = Literal["auto", "text", "lines", "jsonl", "csv", "tsv", "parquet"]
HUB = "hub:"
BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
TABLES = ("parquet", "hub")
"""What `datasets` reads; parts of the others are counted in bytes, of these in rows."""
ROWS_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Where documents are, and what is read of them."""

    path: str
    """A file, a folder, `hub:owner/name` (`hub:owner/name:config`) for a data set of the Hub, or `corpus:` and the name
    of one that is made here (see `clearhead.training.corpora`)."""
    pattern: str = "*"
    """In a folder, which files, by their path in it: "*.py", "letters/*". Hidden ones are passed over."""
    format: Format = "auto"
    """What the files are: one text each, a text a line, or a table. "auto" goes by the end of the name."""
    columns: tuple[str, ...] = ("text",)
    """The columns of a table that are read: one for documents, two for pairs of source and target."""
    label: str | None = None
    """The column that holds what a document is classified as."""
    header: bool = True
    """Whether the first line of CSV and TSV names the columns; without one they are called 0, 1, ..."""
    split: str = "train"
    """Of a data set of the Hub."""
    exclude: tuple[str, ...] = ()
    """In a folder, which of these files are passed over, likewise by patterns."""

    def __post_init__(self) -> None:
        if not self.columns:
            raise UsageError("a corpus needs at least one column to read")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file, or one data set of the Hub."""

    path: str
    name: str
    """Its path in the corpus's folder, so that it is called alike wherever that lies."""
    format: str
    size: int
    """In bytes; in rows for tables, which are counted only when they are read (0)."""


@dataclass(frozen=True, slots=True)
class Document:
    """One record: a text a column, and its place."""

    texts: tuple[str, ...]
    item: int
    """Where in its source: the byte that its line begins with, or the number of its row; 0 for a whole file."""
    label: str | None = None

    @property
    def text(self) -> str:
        return self.texts[0]


# ---- which sources there are


def find(corpus: Corpus) -> tuple[Source, ...]:
    """The sources of a corpus, sorted by name; empty files are passed over.

    Raises:
        ClearheadError: there is no such file or folder, it can't be read, or nothing is in it.
    """
    if not corpus.path:
        raise UsageError("a corpus needs a path: a file, a folder, or hub:owner/name")
    if corpus.path.startswith(HUB):
        return (Source(path=corpus.path, name=corpus.path, format="hub", size=0),)
    root = located(corpus.path)
    if root.is_dir():
        names = sorted(name for name in _walk(root, corpus) if _wanted(corpus, name))
        if not names:
            matching = "" if corpus.pattern == "*" else f" that matches {corpus.pattern!r}"
            raise ClearheadError(f"the folder {root} has no file{matching}; name one with text files in it")
        paths = [(root / name, name) for name in names]
    else:
        paths = [(root, root.name)]
    sources = [_source(path, name, corpus) for path, name in paths]
    if not any(source.size for source in sources):
        what = f"the {len(sources)} files of {root} are" if len(sources) > 1 else f"{sources[0].path} is"
        raise ClearheadError(f"{what} empty; there is no text to learn from")
    return tuple(source for source in sources if source.size)


def _wanted(corpus: Corpus, name: str) -> bool:
    matches = functools.partial(fnmatch.fnmatchcase, name)
    return matches(corpus.pattern) and not any(map(matches, corpus.exclude))


def _walk(root: Path, corpus: Corpus) -> Iterator[str]:
    """Paths of files in a folder and those inside it; hidden ones excepted, and folders of which nothing is wanted."""
    closed = [pattern[:-2] for pattern in corpus.exclude if pattern.endswith("/*")]

    def refuse(problem: OSError) -> None:
        raise _unreadable(problem.filename, problem)

    for folder, inner, files in os.walk(root, onerror=refuse):
        at = "" if folder == str(root) else Path(folder).relative_to(root).as_posix() + "/"
        inner[:] = [
            name
            for name in inner
            if not name.startswith(".") and not any(fnmatch.fnmatchcase(at + name, pattern) for pattern in closed)
        ]
        yield from (at + name for name in files if not name.startswith("."))


def _source(path: Path, name: str, corpus: Corpus) -> Source:
    try:
        size = path.stat().st_size
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    known = corpus.format if corpus.format != "auto" else BY_SUFFIX.get(path.suffix.lower(), "text")
    return Source(path=str(path), name=name, format=known, size=size)


def _unreadable(path: object, problem: OSError) -> ClearheadError:
    return ClearheadError(f"{path} can't be read: {problem.strerror or problem}")


# ---- reading


def documents(
    corpus: Corpus, *, held_out: bool | None = None, share: Share = 0.05, seed: int = 0
) -> Iterator[tuple[str, Document]]:
    """Every document with the name of its source, in order.

    held_out: only those that `is_held_out` says are (True) or are not (False). None is all.
    """
    for source in find(corpus):
        for document in read(corpus, source):
            if held_out is None or _is_held_out(source.name, document.item, share, seed) == held_out:
                yield source.name, document


def _is_held_out(name: str, item: int, share: Share, seed: int) -> bool:
    if isinstance(share, str):
        return fnmatch.fnmatchcase(name, share)
    import numpy as np

    return bool(is_held_out(np.array([document_key(name, item)], np.uint64), share, seed)[0])


def document_key(name: str, item: int) -> int:
    """A number of 64 bits for a document, from its place alone."""
    return int.from_bytes(hashlib.blake2b(f"{name}\n{item}".encode("utf-8", "surrogatepass"), digest_size=8).digest())


def is_held_out(keys_N: NDArray[np.uint64], share: float, seed: int) -> NDArray[np.bool_]:
    """Which documents are for measuring, by their keys: about `share` of them. A document that is, stays so when others
    come or go.
    """
    import numpy as np

    # The finaliser of splitmix64 (Steele, Lea and Flood 2014): every bit of the key and the seed moves every bit.
    mixed = keys_N + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    held: NDArray[np.bool_] = (mixed >> np.uint64(11)) < np.uint64(int(share * 2**53))
    return held


def read(corpus: Corpus, source: Source, start: int = 0, stop: int | None = None) -> Iterator[Document]:
    """As `records`; those with a text that has no character are passed over."""
    return (document for document in records(corpus, source, start, stop) if all(document.texts))


def records(corpus: Corpus, source: Source, start: int = 0, stop: int | None = None) -> Iterator[Document]:
    """The documents of a source, or of the part of it whose lines begin at the bytes from `start` to `stop`, or whose
    rows have these numbers. Only `lines`, `jsonl` and tables have parts.

    Raises:
        ClearheadError: it can't be read, is no UTF-8, or lacks what is asked for; the message names the place.
    """
    if source.format in ("text", "lines") and (len(corpus.columns) > 1 or corpus.label is not None):
        raise ClearheadError(
            f"{source.path} is plain text, which has no columns; pairs and labels come in .tsv, .csv, .jsonl or "
            ".parquet (or say format=)"
        )
    if source.format == "text":
        return _read_text(source)
    if source.format in ("lines", "jsonl"):
        return _read_lines(corpus, source, start, stop)
    if source.format in ("csv", "tsv"):
        return _read_csv(corpus, source)
    return _read_table(corpus, source, start, stop)


def place(source: Source, item: int) -> str:
    """A document's place as a person looks it up: the file, and its line or row, counted from 1."""
    if source.format == "text":
        return source.name
    if source.format not in ("lines", "jsonl"):
        return f"{source.name}, row {item + 1}"
    try:
        with open(source.path, "rb") as file:
            return f"{source.name}, line {_newlines(file, item) + 1}"
    except OSError:
        return f"{source.name}, byte {item}"


def _newlines(file: io.BufferedReader, n_bytes: int) -> int:
    """How many newlines the first bytes of a file have."""
    file.seek(0)
    count = 0
    while n_bytes > 0 and (block := file.read(min(n_bytes, 1 << 20))):
        count += block.count(b"\n")
        n_bytes -= len(block)
    return count


def _read_text(source: Source) -> Iterator[Document]:
    try:
        raw = Path(source.path).read_bytes()
    except OSError as problem:
        raise _unreadable(source.path, problem) from problem
    yield Document((_decoded(raw, source.path),), 0)


def _decoded(raw: bytes, where: str, first: int = 0) -> str:
    """Text of UTF-8 bytes, the byte order mark of a file's beginning taken off. `first` is the number of the first."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise ClearheadError(
            f"{where} is not UTF-8 text: byte {first + problem.start} (0x{raw[problem.start]:02x}) can't stand there. "
            "Convert it (`iconv -f latin1 -t utf-8`), or leave it out with a pattern"
        ) from None
    return text.removeprefix("\ufeff") if first == 0 else text


def _read_lines(corpus: Corpus, source: Source, start: int, stop: int | None) -> Iterator[Document]:
    """A document a line: the line itself, or the columns of the JSON object in it."""
    try:
        with open(source.path, "rb") as file:
            if start:
                file.seek(start - 1)
                file.readline()  # the line that begins before belongs to the part before
            at = file.tell()
            while (stop is None or at < stop) and (raw := file.readline()):
                if raw.strip():
                    yield _line(corpus, source, raw, at)
                at += len(raw)
    except OSError as problem:
        raise _unreadable(source.path, problem) from problem


def _line(corpus: Corpus, source: Source, raw: bytes, at: int) -> Document:
    text = _decoded(raw, source.path, at).removesuffix("\n").removesuffix("\r")
    if source.format == "lines":
        return Document((text,), at)
    try:
        return _document(corpus, json.loads(text), at)
    except (ValueError, ClearheadError) as problem:
        what = f"is not JSON: {problem}" if isinstance(problem, ValueError) else str(problem)
        with open(source.path, "rb") as file:
            number = _newlines(file, at) + 1
        raise ClearheadError(f"{source.path}, line {number} {what}") from None


def _names(corpus: Corpus) -> str:
    names = [*corpus.columns, *([corpus.label] if corpus.label is not None else [])]
    return " and ".join(map(repr, names))


def _document(corpus: Corpus, record: Any, item: int) -> Document:
    """The columns asked for. Raises ClearheadError that goes on after the place."""
    if not isinstance(record, dict):
        raise ClearheadError(f"holds a {type(record).__name__}; an object with {_names(corpus)} is expected")
    for name in corpus.columns:
        if not isinstance(record.get(name), str):
            raise ClearheadError(_lacks(record, name))
    label = None
    if corpus.label is not None:
        value = record.get(corpus.label)
        if value is None or isinstance(value, dict | list):
            raise ClearheadError(_lacks(record, corpus.label))
        label = str(value)
    return Document(tuple(record[name] for name in corpus.columns), item, label)


def _lacks(record: Mapping[str, Any], name: str) -> str:
    if name in record:
        return f"has a {type(record[name]).__name__} as {name!r}; text is expected"
    near = difflib.get_close_matches(name, map(str, record), n=1) or list(map(str, record))[:5]
    return f"has no {name!r}; there is {', '.join(map(repr, near)) or 'nothing'}. Name the columns to read"


def _read_csv(corpus: Corpus, source: Source) -> Iterator[Document]:
    try:
        raw = Path(source.path).read_bytes()
    except OSError as problem:
        raise _unreadable(source.path, problem) from problem
    lines = io.StringIO(_decoded(raw, source.path))
    rows = _comma_separated(lines, source) if source.format == "csv" else _tab_separated(lines)
    names: list[str] | None = None
    item = 0
    for number, row in rows:
        if not any(row):
            continue
        if names is None:
            names = row if corpus.header else [str(i) for i in range(len(row))]
            if corpus.header:
                continue
        try:
            if len(row) != len(names):
                raise ClearheadError(f"has {len(row)} columns, and the first line {len(names)}")
            yield _document(corpus, dict(zip(names, row, strict=True)), item)
        except ClearheadError as problem:
            raise ClearheadError(f"{source.path}, line {number} {problem}") from None
        item += 1


def _comma_separated(lines: io.StringIO, source: Source) -> Iterator[tuple[int, list[str]]]:
    """The number of a row's last line, and its fields."""
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(lines, strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as problem:
        raise ClearheadError(f"{source.path}, line {reader.line_num} is not CSV: {problem}") from None


def _tab_separated(lines: io.StringIO) -> Iterator[tuple[int, list[str]]]:
    """As above; files of sentences hold quotation marks that quote nothing."""
    for number, line in enumerate(lines, 1):
        yield number, line.rstrip("\r\n").split("\t")


# ---- tables, through the package `datasets`


def open_table(corpus: Corpus, source: Source) -> Any:
    """A Parquet file or a data set of the Hub as a `datasets.Dataset`.

    Raises:
        ClearheadError: the package is not installed, or it can't read this.
    """
    if importlib.util.find_spec("datasets") is None:
        raise ClearheadError(
            f'{source.path} is read by the package `datasets`. Run: pip install "clearhead[train]", or give text, '
            "JSONL, CSV or TSV"
        )
    datasets = importlib.import_module("datasets")
    try:
        if source.format == "parquet":
            return datasets.Dataset.from_parquet(source.path)
        name, _, config = source.path.removeprefix(HUB).partition(":")
        return datasets.load_dataset(name, config or None, split=corpus.split)
    except Exception as problem:  # whatever its many readers raise
        raise ClearheadError(f"{source.path} can't be read: {str(problem) or type(problem).__name__}") from problem


def _read_table(corpus: Corpus, source: Source, start: int, stop: int | None) -> Iterator[Document]:
    table = open_table(corpus, source)
    stop = len(table) if stop is None else min(stop, len(table))
    for first in range(start, stop, ROWS_AT_ONCE):
        block: Mapping[str, Sequence[Any]] = table[first : min(first + ROWS_AT_ONCE, stop)]
        for i in range(min(ROWS_AT_ONCE, stop - first)):
            try:
                yield _document(corpus, {name: block[name][i] for name in block}, first + i)
            except ClearheadError as problem:
                raise ClearheadError(f"{source.path}, row {first + i + 1} {problem}") from None


# ---- what the sources hold, as a hash


def fingerprints(corpus: Corpus, sources: Sequence[Source], known: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Size, time of change and hash of every source by its name. `known` is what this gave before: a file whose size
    and time are still the same is not read again.
    """
    return {source.name: _fingerprint(corpus, source, known.get(source.name)) for source in sources}


def _fingerprint(corpus: Corpus, source: Source, known: list[Any] | None) -> list[Any]:
    if source.format == "hub":
        table = open_table(corpus, source)
        return [len(table), 0, str(table._fingerprint)]
    try:
        with open(source.path, "rb") as file:
            stat = os.fstat(file.fileno())
            if known is not None and known[:2] == [stat.st_size, stat.st_mtime_ns]:
                return known
            return [stat.st_size, stat.st_mtime_ns, hashlib.file_digest(file, "sha256").hexdigest()]
    except OSError as problem:
        raise _unreadable(source.path, problem) from problem


def hash_of(values: Any) -> str:
    """A hash of what JSON can say."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
