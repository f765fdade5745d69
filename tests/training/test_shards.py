"""Token ids on disk: the same by one process as by several, made once, and found again after whatever happened."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.errors import ClearheadError
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.training.data import shards, worker
from clearhead.training.data.documents import Corpus, documents
from clearhead.training.data.shards import TokenStore, chunks, store_texts, tokenise
from clearhead.training.data.tokenizers import Kind, TokenizerConfig, train_tokenizer

TEXTS = [f"text {i}: " + "ä b\n" * (i % 7) for i in range(40)]
SOURCE = Path(json.__file__).parent


@pytest.fixture(scope="module")
def letters() -> Tokenizer:
    return train_tokenizer([], TokenizerConfig(kind="bytes"))


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """A file of JSON lines, and two of text."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    (folder / "a.txt").write_text("the first")
    (folder / "c.txt").write_text("the last")
    return Corpus(path=str(folder))


@pytest.fixture
def many_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "JOB_BYTES", 200)


def texts_in(store: TokenStore, tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(store.document(i).tolist()) for i in range(len(store))]


def contents(store: TokenStore) -> dict[str, Any]:
    """What the shards hold, by the names of the files."""
    found: dict[str, Any] = {path.name: path.read_bytes() for path in store.folder.glob("*.ids")}
    for path in store.folder.glob("*.npz"):
        with np.load(path) as file:
            found[path.name] = {name: file[name].tolist() for name in file.files}
    return found


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("processes", [1, 2])
def test_every_document_is_there_in_order(corpus: Corpus, tmp_path: Path, letters: Tokenizer, processes: int) -> None:
    store = tokenise(corpus, letters, tmp_path / "ids", processes=processes)
    expected = ["the first", *TEXTS, "the last"]
    assert len(list(store.folder.glob("*.ids"))) > 5
    assert texts_in(store, letters) == expected
    assert store.n_bytes.tolist() == [len(text.encode()) for text in expected]
    assert store.n_tokens == sum(store.n_bytes)
    assert store.place(0) == "a.txt"
    assert store.place(4) == "b.jsonl, line 4"
    assert store.document(3, 2, 6).tolist() == list(TEXTS[2].encode()[2:6])
    assert store.document(3, 5, 10**6).tolist() == list(TEXTS[2].encode()[5:])
    assert not list(store.folder.glob(".*"))


@pytest.mark.usefixtures("many_shards")
def test_processes_write_what_one_alone_does(corpus: Corpus, tmp_path: Path, letters: Tokenizer) -> None:
    one = tokenise(corpus, letters, tmp_path / "one", processes=1)
    two = tokenise(corpus, letters, tmp_path / "two", processes=3)
    assert contents(one) == contents(two)
    assert one.hash == two.hash


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_long_texts_are_cut_where_nothing_changes(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Corpus(path=str(SOURCE), pattern="*.py")
    texts = [document.text for _, document in documents(folder)]
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind=kind, size=600))
    monkeypatch.setattr(shards, "CHUNK", 500)
    assert all("".join(chunks(text, 500)) == text for text in texts)
    assert max(len(list(chunks(text, 500))) for text in texts) > 20
    store = tokenise(folder, tokenizer, tmp_path)
    assert [store.document(i).tolist() for i in range(len(store))] == [tokenizer.encode(t, bos=False) for t in texts]


def test_text_without_lines_is_cut_too() -> None:
    assert list(chunks("ab " * 20, 10)) == ["ab ab ab", " ab ab ab", *[" ab ab ab"] * 4, " ab ab "]
    assert list(chunks("x" * 25, 10)) == ["x" * 10, "x" * 10, "x" * 5]
    assert list(chunks("", 10)) == [""]


def test_they_are_made_once(
    corpus: Corpus, tmp_path: Path, letters: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tokenise(corpus, letters, tmp_path / "ids")
    with monkeypatch.context() as patch:
        patch.setattr(shards, "write_shard", lambda *_: pytest.fail("it was made again"))
        os.utime(tmp_path / "corpus" / "a.txt")  # the time alone is nothing
        assert tokenise(corpus, letters, tmp_path / "ids").hash == before.hash
    (tmp_path / "corpus" / "a.txt").write_text("the f1rst")
    after = tokenise(corpus, letters, tmp_path / "ids")
    assert after.hash != before.hash
    assert texts_in(after, letters)[0] == "the f1rst"
    assert texts_in(before, letters)[0] == "the first"


def test_another_tokenizer_or_column_is_another_store(tmp_path: Path, letters: Tokenizer) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "ab", "other": "cd", "label": "x"}))
    corpus = Corpus(path=str(path))
    hashes = [tokenise(corpus, letters, tmp_path / "ids").hash]
    other = train_tokenizer([], TokenizerConfig(kind="bytes", marks=(("eos_token", "<end>"),)))
    hashes.append(tokenise(corpus, other, tmp_path / "ids").hash)
    changed = (Corpus(path=str(path), columns=("other",)), Corpus(path=str(path), label="label"))
    hashes += [tokenise(one, letters, tmp_path / "ids").hash for one in changed]
    assert len(set(hashes)) == 4


@pytest.mark.usefixtures("many_shards")
def test_an_interrupted_run_goes_on(
    corpus: Corpus, tmp_path: Path, letters: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tokenise(corpus, letters, tmp_path / "whole", processes=1)
    write, made = shards.write_shard, []

    def write_three(*arguments: Any) -> None:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(arguments[5])
        write(*arguments)

    monkeypatch.setattr(shards, "write_shard", write_three)
    with pytest.raises(KeyboardInterrupt):
        tokenise(corpus, letters, tmp_path / "ids", processes=1)
    monkeypatch.setattr(shards, "write_shard", lambda *a: (made.append(a[5]), write(*a)))
    store = tokenise(corpus, letters, tmp_path / "ids", processes=1)
    assert made == list(range(len(made)))
    assert contents(store) == contents(whole)


@pytest.mark.parametrize("n_written", range(4))
def test_a_full_disk_is_named_and_leaves_no_half_file(
    corpus: Corpus, tmp_path: Path, letters: Tokenizer, monkeypatch: pytest.MonkeyPatch, n_written: int
) -> None:
    written: list[int] = []

    def full(number: int) -> None:
        if len(written) == n_written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        # In turn: hashes, ids, what they are, and the index.
        with pytest.raises(ClearheadError, match="can't be written: No space left on device"):
            tokenise(corpus, letters, tmp_path / "ids")
    assert not [path for path in (tmp_path / "ids").rglob(".*") if path.is_file()]
    assert len(tokenise(corpus, letters, tmp_path / "ids")) == len(TEXTS) + 2


def test_a_broken_file_is_named(corpus: Corpus, tmp_path: Path, letters: Tokenizer) -> None:
    store = tokenise(corpus, letters, tmp_path / "ids")
    ids = store.folder / "00000.ids"
    content = ids.read_bytes()
    ids.write_bytes(content[:-1])
    with pytest.raises(
        ClearheadError, match=rf"00000\.ids is broken \(it should hold {store.n_tokens:,} ids\); delete"
    ):
        tokenise(corpus, letters, tmp_path / "ids")
    ids.write_bytes(content)
    (store.folder / "00000.npz").write_bytes(b"nonsense")
    with pytest.raises(ClearheadError, match=r"00000\.npz is broken"):
        TokenStore(store.folder)
    with pytest.raises(ClearheadError, match="holds no token ids"):
        TokenStore(tmp_path)


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_bad_line_is_named_from_any_process(
    corpus: Corpus, tmp_path: Path, letters: Tokenizer, processes: int
) -> None:
    path = tmp_path / "corpus" / "b.jsonl"
    path.write_text(path.read_text() + '{"text": \n')
    with pytest.raises(ClearheadError, match=r"b\.jsonl, line 41 is not JSON"):
        tokenise(corpus, letters, tmp_path / "ids", processes=processes)


@pytest.mark.parametrize("processes", [1, 2])
def test_half_a_character_is_named(tmp_path: Path, letters: Tokenizer, processes: int) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "\\ud83d"}\n')
    with pytest.raises(ClearheadError, match=r"a\.jsonl, line 2: .*half a surrogate pair"):
        tokenise(Corpus(path=str(tmp_path / "a.jsonl")), letters, tmp_path / "ids", processes=processes)


@pytest.mark.usefixtures("many_shards")
def test_a_process_that_dies_is_named_and_its_work_goes_on(
    corpus: Corpus, tmp_path: Path, letters: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    do, done = worker.Worker.do, []

    def die_at_the_third(self: worker.Worker, *arguments: Any) -> None:
        if len(done) == 2:
            self.process.kill()
            self.process.wait()
        done.append(1)
        do(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(worker.Worker, "do", die_at_the_third)
        with pytest.raises(ClearheadError, match=r"was killed \(SIGKILL\).*the same command"):
            tokenise(corpus, letters, tmp_path / "ids", processes=2)
    assert len(tokenise(corpus, letters, tmp_path / "ids", processes=2)) == len(TEXTS) + 2


def test_nothing_but_spaces_is_refused(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["a b c"], TokenizerConfig(kind="wordpiece", size=30))
    (tmp_path / "a.txt").write_text(" \n ")
    with pytest.raises(ClearheadError, match="not one token"):
        tokenise(Corpus(path=str(tmp_path / "a.txt")), tokenizer, tmp_path / "ids")


def test_ids_take_two_bytes_where_they_can() -> None:
    assert shards._dtype(2**16).itemsize == 2
    assert shards._dtype(2**16 + 1).itemsize == 4


def test_texts_and_pairs_in_memory(tmp_path: Path, letters: Tokenizer) -> None:
    store = store_texts(["one", "two\n"], letters, tmp_path / "a")
    assert texts_in(store, letters) == ["one", "two\n"]
    pairs = store_texts([("one", "eins"), ("two", "zwei")], letters, tmp_path / "b")
    assert (pairs.n_records, pairs.n_columns) == (2, 2)
    assert texts_in(pairs, letters) == ["one", "eins", "two", "zwei"]
    with pytest.raises(ClearheadError, match="the corpus has no labels"):
        _ = pairs.labels
    with pytest.raises(ClearheadError, match="at least one text"):
        store_texts([], letters, tmp_path / "c")


def test_a_bar_is_shown_to_who_asks(
    corpus: Corpus, tmp_path: Path, letters: Tokenizer, capfd: pytest.CaptureFixture[str]
) -> None:
    tokenise(corpus, letters, tmp_path / "quiet")
    assert capfd.readouterr().err == ""
    tokenise(corpus, letters, tmp_path / "ids", progress=True)
    assert "tokenising" in capfd.readouterr().err
