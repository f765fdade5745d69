"""Token ids made once and mapped into memory from then on.

A folder of them holds, for every few megabytes of text, `00000.ids` (the ids alone, two or four bytes each) and
`00000.npz` (where each document ends, and what it is), and an index. Ids are stored without the marks around a text,
which the batches put there. Everything is written under a temporary name first. The folder's own name is a hash of
sources, tokenizer and columns: other text is another folder, and what an interrupted run finished is found again.
"""

from __future__ import annotations

import fnmatch
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import ClearheadError
from clearhead.files import read_json, write_whole
from clearhead.progress import progress_bar
from clearhead.training.data.documents import (
    TABLES,
    Corpus,
    Document,
    Source,
    document_key,
    find,
    fingerprints,
    hash_of,
    open_table,
    place,
    read,
)

if TYPE_CHECKING:
    from clearhead.inputs.tokenizer import Tokenizer

VERSION = 1
INDEX, TOKENIZER, FINGERPRINTS = "index.json", "tokenizer.json", "fingerprints.json"
JOB_BYTES = 8 * 2**20
"""How much text a shard holds, about."""
JOB_ROWS = 20_000
"""How many rows of a table."""
CHUNK = 2**14
"""How many characters of a long text are tokenised at a time, about."""
ALONE = 4 * 2**20
"""Less text than this is not worth starting processes for."""


@dataclass(frozen=True)
class Part:
    """What one job reads of one source."""

    source: int
    start: int = 0
    stop: int | None = None


# ---- making them


def tokenise(
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: str | Path,
    *,
    processes: int | None = None,
    progress: bool | None = None,
) -> TokenStore:
    """The token ids of a corpus, from `folder` where they are there already, and else made and put there.

    Args:
        processes: how many work at it; None is one a processor.
        progress: show a bar on standard error; None is when a person is watching.

    Raises:
        ClearheadError: the corpus can't be read, or the folder can't be written; what was finished stays.
    """
    folder = Path(folder).expanduser()
    sources = find(corpus)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hashes = file_hashes(corpus, sources, folder)
        what = {
            "version": VERSION,
            "sources": {name: hashed for name, (_, _, hashed) in hashes.items()},
            "tokenizer": tokenizer_hash(tokenizer),
            "columns": [*corpus.columns],
            "label": corpus.label,
            "formats": [source.format for source in sources],
            "header": corpus.header,
            "jobs": [JOB_BYTES, JOB_ROWS, CHUNK],
        }
        key = hash_of(what)
        inside = folder / key[:16]
        if not (inside / INDEX).is_file():
            inside.mkdir(exist_ok=True)
            jobs = plan(corpus, sources)
            _make(corpus, sources, jobs, tokenizer, inside, processes, progress)
            _write_index(inside, key, what, sources, tokenizer, len(jobs), len(corpus.columns))
    except OSError as problem:
        raise ClearheadError(f"{folder} can't be written: {problem.strerror or problem}") from problem
    return TokenStore(inside)


def file_hashes(corpus: Corpus, sources: Sequence[Source], folder: Path) -> dict[str, list[Any]]:
    """As `fingerprints`, which are kept in `folder`, so that a file that is as it was is not read again."""
    hashes = fingerprints(corpus, sources, read_json(folder / FINGERPRINTS))
    write_whole(folder / FINGERPRINTS, json.dumps(hashes).encode())
    return hashes


def store_texts(texts: Iterable[str | Sequence[str]], tokenizer: Tokenizer, folder: str | Path) -> TokenStore:
    """As `tokenise`, of texts in memory: they are written to `folder` as one JSON object a line, and read from there.
    A sequence of texts is one record of so many columns.
    """
    folder = Path(folder).expanduser()
    rows = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
    if not rows or len({len(row) for row in rows}) != 1:
        raise ClearheadError("give at least one text, and of each record as many columns as of the others")
    names = ("text",) if len(rows[0]) == 1 else tuple(f"text {i}" for i in range(len(rows[0])))
    lines = "".join(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "texts.jsonl", lines.encode())
    except (OSError, UnicodeEncodeError) as problem:
        raise ClearheadError(f"the texts can't be written to {folder}: {problem}") from problem
    return tokenise(Corpus(path=str(folder / "texts.jsonl"), columns=names), tokenizer, folder)


def plan(corpus: Corpus, sources: Sequence[Source]) -> list[list[Part]]:
    """The parts that each shard is made of: small files together, large ones of lines and rows cut."""
    jobs: list[list[Part]] = [[]]
    room = JOB_BYTES
    for number, source in enumerate(sources):
        if source.format in TABLES:
            starts = range(0, len(open_table(corpus, source)), JOB_ROWS)
            jobs += [[Part(number, start, start + JOB_ROWS)] for start in starts]
            jobs.append([])
            room = JOB_BYTES
        elif source.format in ("lines", "jsonl"):
            for start in range(0, source.size, JOB_BYTES):
                size = min(JOB_BYTES, source.size - start)
                room = _put(jobs, Part(number, start, start + size), size, room)
        else:
            room = _put(jobs, Part(number), source.size, room)
    return [job for job in jobs if job]


def _put(jobs: list[list[Part]], part: Part, size: int, room: int) -> int:
    """Put a part in the last job, or in a new one if that is full; how much room there is then."""
    if size > room and jobs[-1]:
        jobs.append([])
        room = JOB_BYTES
    jobs[-1].append(part)
    return room - size


def _make(
    corpus: Corpus,
    sources: Sequence[Source],
    jobs: Sequence[Sequence[Part]],
    tokenizer: Tokenizer,
    folder: Path,
    processes: int | None,
    progress: bool | None,
) -> None:
    """The shards of all jobs that have none yet."""
    left = [number for number in range(len(jobs)) if not (folder / f"{number:05}.npz").is_file()]
    size = {number: sum(_size(part, sources) for part in jobs[number]) for number in left}
    n = min(processes or _processors(), len(left))
    total = sum(size.values())
    with progress_bar("tokenising", total, progress) as tell:
        if n > 1 and (processes is not None or total > ALONE):
            from clearhead.training.data.worker import run_jobs

            write_whole(folder / TOKENIZER, json.dumps(_as_json(tokenizer)).encode())
            orders = [order(number, jobs[number], corpus, sources, folder) for number in left]
            run_jobs(orders, n, tell)
            return
        for number in left:
            write_shard(corpus, sources, jobs[number], tokenizer, folder, number, tell)


def _processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _size(part: Part, sources: Sequence[Source] | Mapping[int, Source]) -> int:
    return part.stop - part.start if part.stop is not None else sources[part.source].size


def order(
    number: int, parts: Sequence[Part], corpus: Corpus, sources: Sequence[Source], folder: Path
) -> dict[str, Any]:
    """A job as a worker is told it; only the sources that it reads."""
    used = sorted({part.source for part in parts})
    return {
        "number": number,
        "parts": [asdict(part) for part in parts],
        "corpus": asdict(corpus),
        "sources": {i: asdict(sources[i]) for i in used},
        "folder": str(folder),
    }


def write_shard(
    corpus: Corpus,
    sources: Sequence[Source] | Mapping[int, Source],
    parts: Sequence[Part],
    tokenizer: Tokenizer,
    folder: Path,
    number: int,
    tell: Callable[[int], object],
) -> None:
    """Read the parts, tokenise them and write shard `number`. `tell` is told how much was done, as `_size` counts."""
    dtype = _dtype(tokenizer.vocab_size)
    ends, n_bytes, keys, places, labels, done, highest = [0], [], [], [], [], 0, -1
    temporary = folder / f".{number:05}.{secrets.token_hex(4)}.tmp"
    try:
        with temporary.open("wb") as file:
            for part in parts:
                source = sources[part.source]
                for document in read(corpus, source, part.start, part.stop):
                    for text in document.texts:
                        for ids in _encoded(text, document, source, tokenizer):
                            array = np.asarray(ids, dtype)
                            file.write(array.tobytes())
                            done += len(array)
                            highest = max(highest, int(array.max(initial=0)))
                        ends.append(done)
                        n_bytes.append(len(text.encode()))
                    keys.append(document_key(source.name, document.item))
                    places.append((part.source, document.item))
                    labels.append(document.label or "")
                tell(_size(part, sources))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / f"{number:05}.ids")
        about: dict[str, Any] = {
            "ends": np.array(ends, np.int64),
            "bytes": np.array(n_bytes, np.int64),
            "keys": np.array(keys, np.uint64),
            "places": np.array(places, np.int64).reshape(-1, 2),
            "highest": np.array(highest),
        }
        if corpus.label is not None:
            about["labels"] = np.array(labels, np.str_)
        with temporary.open("wb") as file:
            np.savez(file, **about)
            file.flush()
            os.fsync(file.fileno())
        # The mark that the shard is whole.
        temporary.replace(folder / f"{number:05}.npz")
    except OSError as problem:
        raise ClearheadError(f"{folder} can't be written: {problem.strerror or problem}") from problem
    finally:
        temporary.unlink(missing_ok=True)


def _encoded(text: str, document: Document, source: Source, tokenizer: Tokenizer) -> Iterator[list[int]]:
    """The ids of a text without marks, a chunk at a time."""
    encode = tokenizer.encode
    try:
        for i, chunk in enumerate(chunks(text, CHUNK)):
            yield encode(chunk, bos=False) if i == 0 else tokenizer.encode_inner(chunk)
    except ClearheadError as problem:
        raise ClearheadError(f"{place(source, document.item)}: {problem}") from problem


def chunks(text: str, size: int) -> Iterator[str]:
    """A text in pieces of about `size` characters, cut where white space begins: no tokenizer that splits text into
    words joins anything across. Only where there is none in half of that size, a word is cut.
    """
    start = 0
    while len(text) - start > size:
        cut = _cut(text, start + size // 2, start + size)
        yield text[start:cut]
        start = cut
    yield text[start:]


def _cut(text: str, low: int, high: int) -> int:
    """The last beginning of white space, behind a letter or digit if there is one: some join other signs to it."""
    begins = [at for at in range(low, high) if text[at].isspace() and not text[at - 1].isspace()]
    return max((at for at in begins if text[at - 1].isalnum()), default=max(begins, default=high))


def _dtype(vocab_size: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocab_size <= 2**16 else "<u4")


def _write_index(
    folder: Path,
    key: str,
    what: Mapping[str, Any],
    sources: Sequence[Source],
    tokenizer: Tokenizer,
    n_shards: int,
    n_columns: int,
) -> None:
    sizes = [int(_load(folder / f"{number:05}.npz")["ends"][-1]) for number in range(n_shards)]
    if not sum(sizes):
        raise ClearheadError(
            f"the {len(sources)} sources of the corpus give not one token; there is nothing to learn from"
        )
    index = {
        "hash": key,
        "made_of": what,
        "n_columns": n_columns,
        "vocab_size": tokenizer.vocab_size,
        "shards": sizes,
        "sources": [asdict(source) for source in sources],
    }
    write_whole(folder / INDEX, json.dumps(index, indent=1).encode())


def _as_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """All that encoding needs, exactly as it is here."""
    return {"core": tokenizer.core.to_str(), "names": dict(tokenizer.vocabulary.names), "where": tokenizer.where}


def tokenizer_from(path: Path) -> Tokenizer:
    """What `_as_json` wrote."""
    from tokenizers import Tokenizer as Core

    from clearhead.inputs.tokenizer import Tokenizer
    from clearhead.inputs.vocabulary import Vocabulary

    said = read_json(path)
    core = Core.from_str(said["core"])
    return Tokenizer(Vocabulary(core=core, where=said["where"], names=said["names"], eos_ids=(), files=dict))


def tokenizer_hash(tokenizer: Tokenizer) -> str:
    """A hash of what a tokenizer does."""
    return hash_of([tokenizer.core.to_str(), sorted(tokenizer.vocabulary.names.items())])


# ---- files


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as problem:  # a broken zip or array raises many kinds
        raise _broken(path, str(problem)) from problem


def _broken(path: Path, problem: str) -> ClearheadError:
    return ClearheadError(f"{path} is broken ({problem}); delete the folder {path.parent}, and it is made anew")


# ---- reading them


class TokenStore:
    """The token ids of many documents, mapped into memory. A record of several columns is as many documents."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        index = read_json(self.folder / INDEX)
        if not index:
            raise ClearheadError(f"{folder} holds no token ids: there is no {INDEX} that can be read")
        self.hash: str = index["hash"]
        self.n_columns: int = index["n_columns"]
        self.vocab_size: int = index["vocab_size"]
        self.sources = tuple(Source(**source) for source in index["sources"])
        dtype = _dtype(self.vocab_size)
        self._ids: list[NDArray[Any]] = []
        about = []
        for number, n_tokens in enumerate(index["shards"]):
            path = self.folder / f"{number:05}.ids"
            if not path.is_file() or path.stat().st_size != n_tokens * dtype.itemsize:
                raise _broken(path, f"it should hold {n_tokens:,} ids")
            self._ids.append(np.memmap(path, dtype, "r") if n_tokens else np.empty(0, dtype))
            about.append(_load(path.with_suffix(".npz")))
        self.first_of_shard = np.cumsum([0, *(len(one["ends"]) - 1 for one in about)])
        self._bounds = [one["ends"] for one in about]
        self.lengths = np.concatenate([np.diff(one["ends"]) for one in about])
        """Tokens a document."""
        self.n_bytes = np.concatenate([one["bytes"] for one in about])
        """Bytes of UTF-8 a document."""
        self.keys = np.concatenate([one["keys"] for one in about])
        """What says whether a record is held out (see documents.is_held_out)."""
        self._places = np.concatenate([one["places"] for one in about])
        self._labels = [one["labels"] for one in about if "labels" in one]
        self.highest_id = max(int(one["highest"]) for one in about)

    def __len__(self) -> int:
        """How many documents there are: records times columns."""
        return len(self.lengths)

    @property
    def n_records(self) -> int:
        return len(self.keys)

    @property
    def n_tokens(self) -> int:
        return int(self.lengths.sum())

    def document(self, number: int, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """The ids of a document, or those from `start` to `stop` of them."""
        shard = int(np.searchsorted(self.first_of_shard, number, side="right")) - 1
        first, end = self._bounds[shard][number - self.first_of_shard[shard] :][:2]
        stop = end if stop is None else min(first + stop, end)
        return self._ids[shard][first + start : stop]

    def named(self, pattern: str) -> NDArray[np.bool_]:
        """Which records are from files whose names match a pattern."""
        matches = np.array([fnmatch.fnmatchcase(source.name, pattern) for source in self.sources], bool)
        found: NDArray[np.bool_] = matches[self._places[:, 0]]
        return found

    def place(self, record: int) -> str:
        """The file that a record is from, and its line or row."""
        source, item = self._places[record]
        return place(self.sources[source], int(item))

    @cached_property
    def labels(self) -> NDArray[np.str_]:
        """What each record is labelled as.

        Raises:
            ClearheadError: the corpus names no column of labels.
        """
        if not self._labels:
            raise ClearheadError("the corpus has no labels; name their column (label=)")
        return np.concatenate(self._labels)
