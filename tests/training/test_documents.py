"""Documents from files of every kind, in parts as in whole, and what is said of bad ones."""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.errors import ClearheadError, UsageError
from clearhead.training.data import documents as module
from clearhead.training.data.documents import (
    Corpus,
    Source,
    document_key,
    documents,
    find,
    fingerprints,
    is_held_out,
    place,
    read,
)


def texts(corpus: Corpus) -> list[tuple[str, ...]]:
    return [document.texts for _, document in documents(corpus)]


def write(path: Path, content: str | bytes) -> Corpus:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Corpus(path=str(path))


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/a.py", ".hidden/x.txt", ".x.txt", "empty.txt"):
        write(tmp_path / name, "" if name == "empty.txt" else name)
    found = list(documents(Corpus(path=str(tmp_path))))
    assert [name for name, _ in found] == ["a/a.py", "a/z.txt", "b.txt"]
    assert [document.text for _, document in found] == ["a/a.py", "a/z.txt", "b.txt"]
    assert texts(Corpus(path=str(tmp_path), pattern="*.txt", exclude=("a/*",))) == [("b.txt",)]
    assert texts(Corpus(path=str(tmp_path), exclude=("a/z*", "b*"))) == [("a/a.py",)]


def test_a_text_keeps_its_line_ends_and_loses_its_byte_order_mark(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.txt", "\ufeffone\r\ntwo\n")) == [("one\r\ntwo\n",)]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda at: Corpus(path=str(at / "nowhere")), "nowhere can't be read: No such file"),
        (lambda at: Corpus(path=str(at)), "has no file; name one with text files in it"),
        (
            lambda at: [write(at / "a.py", "x"), Corpus(path=str(at), pattern="b*")][1],
            "no file that matches 'b.'",
        ),
        (lambda at: write(at / "a.txt", ""), "a.txt is empty; there is no text to learn from"),
        (lambda at: [write(at / "a", ""), write(at / "b", ""), Corpus(path=str(at))][2], "the 2 files of .* are empty"),
    ],
)
def test_nothing_to_read_is_named(tmp_path: Path, make: Any, says: str) -> None:
    with pytest.raises(ClearheadError, match=says):
        find(make(tmp_path))


def test_what_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.txt", "x")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nothing")
    with pytest.raises(ClearheadError, match=r"gone\.txt can't be read: No such file"):
        find(Corpus(path=str(tmp_path)))

    def refuse(path: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ClearheadError, match="can't be read: Permission denied"):
        find(Corpus(path=str(tmp_path)))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tsv"])
def test_what_is_not_utf8_is_named_with_its_byte(tmp_path: Path, name: str) -> None:
    good = b'{"text": "a"}\n' if name == "a.jsonl" else b"text\nabcdefghi"
    corpus = write(tmp_path / name, good + "é".encode("latin1") + b"z\n")
    with pytest.raises(ClearheadError, match=rf"a\.\w+ is not UTF-8 text: byte {len(good)} \(0xe9\)"):
        texts(corpus)


def test_json_lines(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"t{i}\u2028", "n": i, "label": i % 2 == 0}) for i in range(3)]
    corpus = write(tmp_path / "a.jsonl", "\r\n".join([lines[0], "", *lines[1:]]))
    assert texts(corpus) == [("t0\u2028",), ("t1\u2028",), ("t2\u2028",)]
    labelled = Corpus(path=corpus.path, label="label")
    assert [document.label for _, document in documents(labelled)] == ["True", "False", "True"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{nonsense", "line 3 is not JSON: Expecting property name"),
        ('["a"]', "line 3 holds a list; an object with 'text' is expected"),
        ('{"txt": "a"}', "line 3 has no 'text'; there is 'txt'"),
        ('{"text": 5}', "line 3 has a int as 'text'; text is expected"),
        ('{"text": null}', "line 3 has a NoneType as 'text'; text is expected"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str, says: str) -> None:
    corpus = write(tmp_path / "a.jsonl", '{"text": "a"}\n\n' + line + '\n{"text": "b"}\n')
    with pytest.raises(ClearheadError, match=says.replace("[", r"\[")):
        texts(corpus)
    # Also where reading begins in the middle of the file.
    with pytest.raises(ClearheadError, match="line 3"):
        list(read(corpus, find(corpus)[0], start=10))


@pytest.mark.parametrize("ending", ["", "\n", "\r\n\n"])
@pytest.mark.parametrize("format_", ["lines", "jsonl"])
def test_any_cut_of_a_file_gives_its_lines_once(tmp_path: Path, format_: Any, ending: str) -> None:
    rows = [json.dumps({"text": "ä" * n}, ensure_ascii=False) for n in (1, 9, 3, 1, 30, 2)]
    corpus = Corpus(path=write(tmp_path / "a.txt", "\n".join(rows) + ending).path, format=format_)
    source = find(corpus)[0]
    whole = list(read(corpus, source))
    assert len(whole) == 6
    for step in range(1, source.size + 1):
        parts = [d for start in range(0, source.size, step) for d in read(corpus, source, start, start + step)]
        assert parts == whole
    assert [place(source, d.item) for d in whole] == [f"a.txt, line {i}" for i in range(1, 7)]


def test_csv_and_tsv(tmp_path: Path) -> None:
    comma = write(tmp_path / "a.csv", 'x,text\n1,"two\nlines, ""quoted"""\n\n2,b\n')
    assert texts(comma) == [('two\nlines, "quoted"',), ("b",)]
    # In tab-separated files of sentences a quotation mark is one.
    tabs = write(tmp_path / "a.tsv", 'He said "no.\tEr sagte "nein.\nGo.\tGeh.\n')
    pairs = Corpus(path=tabs.path, columns=("0", "1"), header=False)
    assert texts(pairs) == [('He said "no.', 'Er sagte "nein.'), ("Go.", "Geh.")]
    named = Corpus(path=comma.path, columns=("text",), label="x")
    assert [(d.text, d.label, d.item) for _, d in documents(named)][1] == ("b", "2", 1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("text,n\na,1\nb\n", "line 3 has 1 columns, and the first line 2"),
        ("txt,n\na,1\n", "line 2 has no 'text'; there is 'txt'"),
        ('text\na\n"b', "line 3 is not CSV: unexpected end"),
    ],
)
def test_a_bad_row_of_csv_is_named(tmp_path: Path, content: str, says: str) -> None:
    with pytest.raises(ClearheadError, match=says):
        texts(write(tmp_path / "a.csv", content))


def test_plain_text_has_no_columns(tmp_path: Path) -> None:
    corpus = Corpus(path=write(tmp_path / "a.txt", "a").path, columns=("en", "de"))
    with pytest.raises(ClearheadError, match="plain text, which has no columns"):
        texts(corpus)


def test_a_corpus_without_path_or_columns_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a path"):
        find(Corpus(path=""))
    with pytest.raises(UsageError, match="at least one column"):
        Corpus(path="x", columns=())


# ---- what is held out


def test_a_share_is_held_out_whatever_stands_around(tmp_path: Path) -> None:
    keys = np.array([document_key("a.jsonl", i) for i in range(20_000)], np.uint64)
    held = is_held_out(keys, 0.05, 3)
    assert abs(held.mean() - 0.05) < 4 * (0.05 * 0.95 / 20_000) ** 0.5
    assert (is_held_out(keys[::-7], 0.05, 3) == held[::-7]).all()
    other = is_held_out(keys, 0.05, 4)
    assert abs((held & other).mean() - 0.05**2) < 0.002
    assert not is_held_out(keys, 0.0, 3).any()
    assert is_held_out(keys, 1.0, 3).all()


def test_documents_are_learnt_or_held_out(tmp_path: Path) -> None:
    for i in range(60):
        write(tmp_path / f"{i}.txt", f"text {i}")
    corpus = Corpus(path=str(tmp_path))
    every = list(documents(corpus))
    held = list(documents(corpus, held_out=True, share=0.3, seed=1))
    learnt = list(documents(corpus, held_out=False, share=0.3, seed=1))
    assert 5 < len(held) < 35
    assert sorted(held + learnt, key=every.index) == every


# ---- hashes


def test_a_fingerprint_follows_the_content(tmp_path: Path) -> None:
    corpus = write(tmp_path / "a.txt", "one")
    before = fingerprints(corpus, find(corpus), {})
    assert fingerprints(corpus, find(corpus), before) == before
    os.utime(tmp_path / "a.txt", ns=(1, 1))
    touched = fingerprints(corpus, find(corpus), before)
    assert touched["a.txt"][2] == before["a.txt"][2]
    write(tmp_path / "a.txt", "two")
    assert fingerprints(corpus, find(corpus), touched)["a.txt"][2] != before["a.txt"][2]


def test_what_did_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write(tmp_path / "a.txt", "one")
    before = fingerprints(corpus, find(corpus), {})
    monkeypatch.setattr(module.hashlib, "file_digest", lambda *_: pytest.fail("it was read"))
    assert fingerprints(corpus, find(corpus), before) == before


# ---- tables


class Table:
    """As much of `datasets.Dataset` as is asked for."""

    _fingerprint = "f00d"

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: slice) -> dict[str, list[Any]]:
        return {name: [row[name] for row in self.rows[which]] for name in self.rows[0]}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Table:
    """A data set of the Hub, by a stand-in for the package `datasets`."""
    table = Table([{"text": f"t{i}", "id": i} for i in range(2500)])
    fake: Any = types.ModuleType("datasets")
    fake.__spec__ = importlib.machinery.ModuleSpec("datasets", None)

    def load(name: str, config: str | None, split: str) -> Table:
        if (name, config, split) != ("someone/texts", "small", "test"):
            raise FileNotFoundError(f"no data set {name}")
        return table

    fake.load_dataset = load
    monkeypatch.setitem(sys.modules, "datasets", fake)
    return table


def test_a_data_set_of_the_hub(hub: Table) -> None:
    corpus = Corpus(path="hub:someone/texts:small", split="test")
    assert texts(corpus) == [(f"t{i}",) for i in range(2500)]
    source = find(corpus)[0]
    assert [d.item for d in read(corpus, source, 998, 1003)] == [998, 999, 1000, 1001, 1002]
    assert place(source, 6) == "hub:someone/texts:small, row 7"
    assert fingerprints(corpus, [source], {}) == {source.name: [2500, 0, "f00d"]}
    hub.rows[1004]["text"] = None
    with pytest.raises(ClearheadError, match="row 1005 has a NoneType as 'text'"):
        texts(corpus)
    with pytest.raises(ClearheadError, match="can't be read: no data set someone/other"):
        texts(Corpus(path="hub:someone/other"))


def test_tables_without_the_package_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ClearheadError, match=r"clearhead\[train\]"):
        texts(Corpus(path="hub:someone/texts"))


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets", reason="`datasets` comes with clearhead[train]")
    pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"en": ["one", "two"], "de": ["eins", "zwei"]}), path)
    corpus = Corpus(path=str(path), columns=("en", "de"))
    assert texts(corpus) == [("one", "eins"), ("two", "zwei")]
    path.write_bytes(b"nonsense")
    with pytest.raises(ClearheadError, match=r"a\.parquet can't be read"):
        texts(corpus)


def test_a_source_names_its_place_when_the_file_is_gone() -> None:
    source = Source(path="/nowhere/a.jsonl", name="a.jsonl", format="jsonl", size=9)
    assert place(source, 5) == "a.jsonl, byte 5"


def test_a_pattern_of_files_is_held_out(tmp_path: Path) -> None:
    for name in ("learnt.txt", "held_a.txt", "held_b.txt"):
        (tmp_path / name).write_text(f"{name} 1\n{name} 2\n")
    corpus = Corpus(path=str(tmp_path), format="lines")
    held = [document.text for _, document in documents(corpus, held_out=True, share="held_*")]
    assert held == ["held_a.txt 1", "held_a.txt 2", "held_b.txt 1", "held_b.txt 2"]
    learnt = [document.text for _, document in documents(corpus, held_out=False, share="held_*")]
    assert learnt == ["learnt.txt 1", "learnt.txt 2"]
