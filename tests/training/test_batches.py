"""The batch of a step: what is in it, that nothing but its number decides, and that nothing is lost on the way."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.training.config import MaskingConfig
from clearhead.training.data.batches import (
    IGNORE,
    Batch,
    RowBatches,
    collate,
    label_batches,
    masked_batches,
    next_token_batches,
    pair_batches,
    split,
)
from clearhead.training.data.documents import Corpus
from clearhead.training.data.rows import Marks, by_length, split_records
from clearhead.training.data.shards import TokenStore, store_texts, tokenise
from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer
from tests.model.small import small
from tests.oracles import close

END = 256
TEXTS = ["".join(chr(65 + (i * 7 + j) % 26) for j in range(1 + i * 5 % 23)) for i in range(50)]


@pytest.fixture(scope="module")
def letters() -> Tokenizer:
    """Ids are bytes, and 256 is begin, end and padding."""
    return train_tokenizer([], TokenizerConfig(kind="bytes"))


@pytest.fixture
def keep(tmp_path: Path, letters: Tokenizer) -> Callable[..., TokenStore]:
    return lambda texts=TEXTS, tokenizer=letters: store_texts(texts, tokenizer, tmp_path)


@pytest.fixture
def store(keep: Callable[..., TokenStore]) -> TokenStore:
    return keep()


def same(a: Batch, b: Batch) -> bool:
    alike = a.inputs.keys() == b.inputs.keys() and all(torch.equal(a.inputs[k], b.inputs[k]) for k in a.inputs)
    return alike and torch.equal(a.targets, b.targets)


def told(batches: list[Batch]) -> list[tuple[int, int]]:
    """Every slot that is read, and what is to be told there."""
    found: list[tuple[int, int]] = []
    for batch in batches:
        tokens, present = batch.inputs["tokens_BT"], batch.inputs.get("present")
        there = torch.ones_like(tokens, dtype=torch.bool) if present is None else present
        found += zip(tokens[there].tolist(), batch.targets[there].tolist(), strict=True)
        assert (batch.targets[~there] == IGNORE).all()
    return found


def expected(texts: list[str]) -> list[tuple[int, int]]:
    rows = [[END, *text.encode(), END] for text in texts]
    return [pair for row in rows for pair in pairwise(row)]


def held_and_learnt(store: TokenStore, share: float, seed: int) -> tuple[list[str], list[str]]:
    learnt, held = split_records(store, share, seed)
    return [TEXTS[i] for i in held], [TEXTS[i] for i in learnt]


# ---- next token


@pytest.mark.parametrize("pack", ["documents", "plain", "rows"])
def test_an_epoch_tells_every_token_behind_the_one_before_it(store: TokenStore, letters: Tokenizer, pack: Any) -> None:
    batches = next_token_batches(store, letters, rows=1, length=16, pack=pack, held_out=0.2, seed=1)
    held, learnt = held_and_learnt(store, 0.2, 1)
    assert 4 < len(held) < 20
    wanted = Counter(expected(learnt))
    for epoch in range(3):
        steps = [batches.step(epoch * batches.n_rows + i) for i in range(batches.n_rows)]
        found = Counter(told(steps))
        assert not found - wanted
        # What fills no row waits for another epoch.
        assert (wanted - found).total() < 16 if pack != "rows" else found == wanted
    assert told(list(batches.held_out())) == expected(held)
    assert batches.held_out_bytes == sum(len(text) for text in held)


def test_documents_of_a_row_do_not_see_each_other(keep: Callable[..., TokenStore], letters: Tokenizer) -> None:
    """A model gives each document in a packed row what it gives it alone."""
    store = keep(["".join(map(chr, range(i, i + 2 + i % 5))) for i in range(1, 40)])
    marks = Marks(before_document=(0,), end=0)
    batches = next_token_batches(store, letters, rows=3, length=20, held_out=0.0, marks=marks)
    model = small()
    for number in range(3):
        batch = batches.step(number)
        with torch.no_grad():
            packed = model(**batch.inputs)
            n_runs = 0
            for row, (tokens, numbers) in enumerate(zip(*batch.inputs.values(), strict=True)):
                assert torch.equal(numbers.unique(), torch.arange(int(numbers[-1]) + 1))
                for i in range(int(numbers[-1]) + 1):
                    here = numbers == i
                    # Every document but the first begins behind its mark.
                    assert i == 0 or tokens[here][0] == 0
                    assert close(packed[row, here], model(tokens[here][None])[0])
                    n_runs += 1
        assert n_runs > 6
    plain = next_token_batches(store, letters, rows=3, length=20, held_out=0.0, marks=marks, pack="plain")
    assert plain.step(0).inputs.keys() == {"tokens_BT"}
    assert torch.equal(plain.step(0).inputs["tokens_BT"], batches.step(0).inputs["tokens_BT"])


def test_a_step_is_a_function_of_its_number(store: TokenStore, letters: Tokenizer) -> None:
    def made(seed: int = 0) -> RowBatches:
        return next_token_batches(store, letters, rows=3, length=16, seed=seed)

    batches = made()
    straight = [batches.step(i) for i in range(40)]
    assert batches.n_rows < 20 * 3
    for i in (39, 0, 17, 16, 38, 3):
        assert same(batches.step(i), straight[i])
    assert same(made().step(29), straight[29])
    assert not same(made(seed=1).step(29), straight[29])


def test_batches_go_on_over_the_end_of_an_epoch(store: TokenStore, letters: Tokenizer) -> None:
    """H09: rows are counted on, so that none is left out or comes twice where one epoch ends in a batch."""
    batches = next_token_batches(store, letters, rows=4, length=16, pack="rows", held_out=0.0)
    ones = next_token_batches(store, letters, rows=1, length=16, pack="rows", held_out=0.0)
    assert batches.n_rows % 4
    rows = [one for i in range(batches.n_rows) for one in split(batches.step(i), 1)]
    firsts = [tuple(told([row])) for row in rows]
    n = batches.n_rows
    for epoch in range(4):
        assert Counter(firsts[epoch * n : (epoch + 1) * n]) == Counter(firsts[:n])
        assert epoch == 0 or firsts[epoch * n : (epoch + 1) * n] != firsts[:n]
    assert sorted(firsts[:n]) == sorted(tuple(told([ones.step(i)])) for i in range(n))


def test_more_rows_than_an_epoch_has(keep: Callable[..., TokenStore], letters: Tokenizer) -> None:
    batches = next_token_batches(keep(["abcdefg", "hij"]), letters, rows=7, length=4, pack="rows", held_out=0.0)
    assert batches.n_rows == 3
    assert batches.step(5).targets.shape == (7, 4)


def test_a_long_document_is_cut_elsewhere_in_every_epoch(keep: Callable[..., TokenStore], letters: Tokenizer) -> None:
    text = "".join(chr(33 + i % 90) for i in range(400))
    batches = next_token_batches(keep([text]), letters, rows=1, length=32, held_out=0.0)
    starts = [
        {int(batches.step(e * batches.n_rows + i).inputs["tokens_BT"][0, 0]) for i in range(12)} for e in range(4)
    ]
    assert len({frozenset(one) for one in starts}) > 1


def test_the_end_is_held_out_where_documents_are_few(keep: Callable[..., TokenStore], letters: Tokenizer) -> None:
    text = "".join(chr(33 + i % 90) for i in range(400))
    batches = next_token_batches(keep([text]), letters, rows=1, length=32, held_out=0.1, pack="rows")
    held = told(list(batches.held_out()))
    assert held == expected([text])[-40:]
    assert batches.held_out_bytes == 39
    learnt = told([batches.step(i) for i in range(batches.n_rows)])
    assert Counter(learnt) + Counter(held) == Counter(expected([text]))


def test_without_a_mark_to_begin_with_the_first_token_is_not_told(
    keep: Callable[..., TokenStore], letters: Tokenizer
) -> None:
    batches = next_token_batches(
        keep(["abc", "de"]), letters, rows=2, length=8, pack="rows", held_out=0.0, marks=Marks()
    )
    assert Counter(told([batches.step(0)])) == Counter([(97, 98), (98, 99), (99, IGNORE), (100, 101), (101, IGNORE)])


def test_padding_that_is_the_end_mark(keep: Callable[..., TokenStore], letters: Tokenizer) -> None:
    """H12 (transformers #23530): every text's end is told though padding has its id; padding is known by lengths."""
    batches = next_token_batches(keep(["ab", "abcd"]), letters, rows=2, length=6, pack="rows", held_out=0.0)
    assert batches.pad_id == END
    rows = [batches._epoch(0).row(i) for i in range(2)]
    batch = collate(sorted(rows, key=lambda row: len(row["tokens"])), END, length=6)
    assert batch.targets.tolist() == [[97, 98, END, *[IGNORE] * 3], [97, 98, 99, 100, END, IGNORE]]
    assert int((batch.targets == IGNORE).sum()) == 4
    assert (batch.targets == END).sum(dim=1).tolist() == [1, 1]
    assert batch.inputs["present"].sum(dim=1).tolist() == [3, 5]
    assert batch.inputs["tokens_BT"].tolist() == [[END, 97, 98, END, END, END], [END, 97, 98, 99, 100, END]]


def test_splitting_keeps_every_row(store: TokenStore, letters: Tokenizer) -> None:
    batches = next_token_batches(store, letters, rows=8, length=16, pack="rows")
    batch = next(batch for batch in map(batches.step, range(20)) if "present" in batch.inputs)
    for n in (1, 3, 8, 100):
        parts = split(batch, n)
        assert max(len(part.targets) for part in parts) <= n
        whole = Batch(
            {k: torch.cat([part.inputs[k] for part in parts]) for k in batch.inputs},
            torch.cat([part.targets for part in parts]),
        )
        assert same(whole, batch)
    with pytest.raises(UsageError, match="micro_rows is 0"):
        split(batch, 0)


def test_what_can_not_be_is_refused(keep: Callable[..., TokenStore], store: TokenStore, letters: Tokenizer) -> None:
    with pytest.raises(UsageError, match="a batch of 0 rows"):
        next_token_batches(store, letters, rows=0, length=16)
    with pytest.raises(UsageError, match="there is no step -1"):
        next_token_batches(store, letters, rows=1, length=16).step(-1)
    with pytest.raises(ClearheadError, match="not enough to learn from to fill one row of 5,000 tokens"):
        next_token_batches(store, letters, rows=1, length=5000)
    with pytest.raises(UsageError, match="rows of 0 tokens have no room"):
        next_token_batches(store, letters, rows=1, length=0)
    with pytest.raises(ClearheadError, match="documents have one column, and these records have 2"):
        next_token_batches(keep([("a", "b")]), letters, rows=1, length=4)


def test_a_model_without_room_is_refused(store: TokenStore, letters: Tokenizer) -> None:
    """Before the first step: ids beyond the vocabulary, and rows longer than the model."""
    batches = next_token_batches(store, letters, rows=1, length=16)
    with pytest.raises(ClearheadError, match="the data has the token 256, and the model's vocabulary ends at 49"):
        batches.check(small().config)
    batches.needs = replace(batches.needs, length=65, highest_id=49)
    batches.check(small().config)
    with pytest.raises(ClearheadError, match="rows have 65 tokens, and the model reads 64"):
        batches.check(small("learned").config)
    with pytest.raises(ClearheadError, match="rows have 65 tokens, and the model reads 32"):
        batches.check(replace(small().config, context=32))


def test_a_description_is_json_and_differs(store: TokenStore, letters: Tokenizer) -> None:
    def described(**changes: Any) -> str:
        how: dict[str, Any] = {"rows": 2, "length": 16, "seed": 0, "held_out": 0.1, "pack": "plain"}
        return json.dumps(next_token_batches(store, letters, **how | changes).describe())

    one = described()
    assert described() == one
    others = [
        described(**{k: v}) for k, v in (("rows", 3), ("length", 8), ("seed", 1), ("held_out", 0.2), ("pack", "rows"))
    ]
    assert len({one, *others}) == 6


# ---- masked tokens


@pytest.fixture
def pieces() -> Tokenizer:
    return train_tokenizer(
        ["the keys to the cabinet are on the table " * 3], TokenizerConfig(kind="wordpiece", size=60)
    )


@pytest.mark.parametrize("pack", ["documents", "plain", "rows"])
def test_masked_rows(keep: Callable[..., TokenStore], pieces: Tokenizer, pack: Any) -> None:
    words = "the keys to the cabinet are on the table".split()
    texts = [" ".join(words[i % 9 :] * (1 + i % 3)) for i in range(30)]
    store = keep(texts, pieces)
    cls, sep, pad = (pieces.token_to_id(mark) for mark in ("[CLS]", "[SEP]", "[PAD]"))
    batches = masked_batches(store, pieces, rows=4, length=16, pack=pack, held_out=0.2)
    for number in range(20):
        batch = batches.step(number)
        tokens, targets = batch.inputs["tokens_BT"], batch.targets
        there = batch.inputs.get("present", torch.ones_like(tokens, dtype=torch.bool))
        assert (tokens[:, 0] == cls).all()
        last = there.sum(dim=1) - 1
        assert (tokens[torch.arange(4), last] == sep).all()
        assert (tokens[~there] == pad).all()
        assert (targets[~there] == IGNORE).all()
        assert not torch.isin(targets, torch.tensor([cls, sep, pad])).any()
        assert 0 < int((targets != IGNORE).sum()) <= 4 * 3
        assert ("documents" in batch.inputs) == (pack == "documents")
        if pack == "documents":
            # A document ends with its mark.
            numbers = batch.inputs["documents"]
            ends = numbers[:, :-1] != numbers[:, 1:]
            assert (tokens[:, :-1][ends] == sep).all()
            assert tokens.shape == numbers.shape == (4, 16)
        assert same(batch, masked_batches(store, pieces, rows=4, length=16, pack=pack, held_out=0.2).step(number))
    # The same row is masked elsewhere in another epoch.
    hidden: dict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)
    for row in (row for i in range(batches.n_rows) for row in split(batches.step(i), 1)):
        whole = torch.where(row.targets != IGNORE, row.targets, row.inputs["tokens_BT"])
        hidden[tuple(whole[0].tolist())].add(tuple(row.targets[0].tolist()))
    assert pack != "rows" or max(map(len, hidden.values())) > 2
    first, again = list(batches.held_out()), list(batches.held_out())
    assert all(map(same, first, again))
    assert batches.held_out_bytes is None


def test_a_row_is_masked_anew_in_every_step_and_place(keep: Callable[..., TokenStore], pieces: Tokenizer) -> None:
    text = "the keys to the cabinet are on the table"
    for rows in (1, 20):
        batches = masked_batches(keep([text], pieces), pieces, rows=rows, length=16, pack="rows", held_out=0.0)
        assert batches.n_rows == 1
        masks = [tuple(row.tolist()) for i in range(20 // rows) for row in batches.step(i).targets]
        assert len(masks) == 20
        assert len(set(masks)) > 5


def test_whole_words_reach_the_batches(keep: Callable[..., TokenStore], pieces: Tokenizer) -> None:
    store = keep(["the teekys to thatcabinet bare oneths tables"] * 9, pieces)
    how: dict[str, Any] = {"rows": 2, "length": 16, "held_out": 0.0}
    one = masked_batches(store, pieces, **how)
    other = masked_batches(store, pieces, masking=MaskingConfig(whole_words=True), **how)
    assert one.describe()["masking"]["whole_words"] is False
    assert other.describe()["masking"]["whole_words"] is True
    assert any(not same(one.step(i), other.step(i)) for i in range(5))


# ---- pairs


PAIRS = [("abc" * (1 + i % 4), "xy" * (1 + i % 6)) for i in range(40)]


def read_pairs(batches: list[Batch]) -> list[tuple[str, str]]:
    """The texts of each row, after a look at everything around them."""
    found = []
    for batch in batches:
        source, tokens = batch.inputs["source"], batch.inputs["tokens_BT"]
        heard = batch.inputs.get("source_present", torch.ones_like(source, dtype=torch.bool))
        there = batch.inputs.get("present", torch.ones_like(tokens, dtype=torch.bool))
        for i in range(len(source)):
            read, answer = tokens[i][there[i]].tolist(), batch.targets[i][there[i]].tolist()
            assert read[0] == END
            assert answer == [*read[1:], END]
            assert (batch.targets[i][~there[i]] == IGNORE).all()
            ids = source[i][heard[i]].tolist()
            assert ids[0] == END
            found.append((bytes(ids[1:]).decode(), bytes(read[1:]).decode()))
    return found


def test_pairs_are_padded_apart(keep: Callable[..., TokenStore], letters: Tokenizer) -> None:
    batches = pair_batches(keep(PAIRS), letters, rows=4, length=20, held_out=0.2)
    held = read_pairs(list(batches.held_out()))
    assert 2 < len(held) < 16
    assert batches.n_rows + len(held) == 40
    rows = [one for i in range(batches.n_rows) for one in split(batches.step(i), 1)]
    learnt = [pair for row in rows[: batches.n_rows] for pair in read_pairs([row])]
    assert Counter(learnt + held) == Counter(PAIRS)
    assert any("source_present" in batches.step(i).inputs for i in range(9))


def test_pairs_of_like_length_are_read_together(keep: Callable[..., TokenStore], letters: Tokenizer) -> None:
    pairs = [("abc" * (1 + i % 6), "xy" * (1 + i % 6)) for i in range(160)]
    batches = pair_batches(keep(pairs), letters, rows=8, length=20, held_out=0.0)
    steps = [batches.step(i) for i in range(20)]
    filled = sum(int(s.inputs.get("present", torch.ones_like(s.targets)).sum()) for s in steps)
    assert filled / sum(s.targets.numel() for s in steps) > 0.85


def test_pairs_that_are_too_long(keep: Callable[..., TokenStore], letters: Tokenizer) -> None:
    store = keep([("a" * 3, "b"), ("a" * 10, "b" * 2), ("a", "b" * 12)])
    how: dict[str, Any] = {"rows": 1, "length": 10, "held_out": 0.0}
    with pytest.raises(
        ClearheadError,
        match=r"2 of 3 texts are longer than a row; the first is texts.jsonl, line 2, of 11 tokens .* rows have 10",
    ):
        pair_batches(store, letters, **how)
    assert pair_batches(store, letters, longer="drop", **how).n_rows == 1
    cut = pair_batches(store, letters, longer="cut", **how)
    rows = sorted((cut.step(i) for i in range(3)), key=lambda b: b.inputs["source"].tolist())
    assert max(b.inputs["source"].shape[1] for b in rows) == 10
    longest = max(rows, key=lambda b: b.targets.shape[1])
    assert longest.inputs["tokens_BT"].tolist() == [[END, *b"bbbbbbbbb"]]
    assert longest.targets.tolist() == [[*b"bbbbbbbbbb"]]  # its end is not told where it is not
    with pytest.raises(ClearheadError, match="all 3 texts are longer than a row of 3 tokens"):
        pair_batches(store, letters, rows=1, length=2, source_length=3, longer="drop", held_out=0.0)
    assert pair_batches(store, letters, rows=1, length=13, source_length=11, held_out=0.0).n_rows == 3


def test_pairs_need_two_columns_and_an_end(
    keep: Callable[..., TokenStore], pieces: Tokenizer, letters: Tokenizer
) -> None:
    with pytest.raises(ClearheadError, match="pairs have two columns, and these records have 1"):
        pair_batches(keep(), letters, rows=1, length=9)
    with pytest.raises(ClearheadError, match="has no end mark"):
        pair_batches(keep([("the", "keys")], pieces), pieces, rows=1, length=9)


def test_a_decoder_begins_as_it_is_told(keep: Callable[..., TokenStore], letters: Tokenizer) -> None:
    batch = pair_batches(keep([("a", "b")]), letters, rows=1, length=9, start=7, held_out=0.0).step(0)
    assert batch.inputs["tokens_BT"].tolist() == [[7, 98]]
    assert batch.targets.tolist() == [[98, END]]


# ---- labels


def labelled(path: Path, lines: str, tokenizer: Tokenizer) -> TokenStore:
    path.mkdir(exist_ok=True)
    (path / "a.tsv").write_text("text\tlabel\n" + lines)
    return tokenise(Corpus(path=str(path / "a.tsv"), label="label"), tokenizer, path / "ids")


def test_labels(tmp_path: Path, letters: Tokenizer) -> None:
    store = labelled(tmp_path, "good film\tpos\nbad\tneg\nfine\tpos\n", letters)
    batches = label_batches(store, letters, rows=3, length=8, held_out=0.0)
    assert batches.labels == ("neg", "pos")
    batch = batches.step(0)
    assert batch.targets.dtype == torch.int64
    rows = zip(batch.inputs["tokens_BT"], batch.inputs["present"], batch.targets, strict=True)
    found = {bytes(tokens[there].tolist()[1:]): int(label) for tokens, there, label in rows}
    assert found == {b"good fi": 1, b"bad": 0, b"fine": 1}  # behind the begin mark, and cut
    other = label_batches(store, letters, rows=3, length=8, names=("pos", "neg", "none"), held_out=0.0)
    assert sorted(other.step(0).targets.tolist()) == [0, 0, 1]
    with pytest.raises(ClearheadError, match=r"a\.tsv, row 2 is labelled 'neg', which is none of 'pos'"):
        label_batches(store, letters, rows=3, length=8, names=("pos",))
    with pytest.raises(ClearheadError, match="row 1 is labelled 'pos', which is no number"):
        label_batches(store, letters, rows=3, length=8, values=True)
    with pytest.raises(ClearheadError, match="longer than a row"):
        label_batches(store, letters, rows=3, length=8, longer="refuse", held_out=0.0)


def test_numbers_as_labels_and_as_values(tmp_path: Path, letters: Tokenizer) -> None:
    store = labelled(tmp_path, "".join(f"t{i}\t{i}\n" for i in range(12)), letters)
    assert label_batches(store, letters, rows=3, length=8).labels == tuple(map(str, range(12)))
    values = label_batches(store, letters, rows=12, length=8, values=True, held_out=0.0).step(0)
    assert values.targets.dtype == torch.float32
    assert sorted(values.targets.tolist()) == list(range(12))


# ---- order


def test_an_order_has_every_row_once() -> None:
    lengths = np.random.default_rng(0).integers(1, 99, 1003)
    for n_together in (1, 8, 2000):
        order = by_length(lengths, np.random.default_rng(1), n_together)
        assert sorted(order.tolist()) == list(range(1003))
    order = by_length(lengths, np.random.default_rng(1), 8)[:1000].reshape(-1, 8)
    assert np.ptp(lengths[order], axis=1).mean() < 5
    assert np.abs(np.corrcoef(lengths[order[:, 0]], np.arange(125))[0, 1]) < 0.3


def test_tensors_are_on_the_cpu_and_whole_numbers(store: TokenStore, letters: Tokenizer) -> None:
    batch = next_token_batches(store, letters, rows=2, length=16).step(0)
    tensors: list[Tensor] = [*batch.inputs.values(), batch.targets]
    assert all(x.device.type == "cpu" and x.dtype == torch.int64 for x in tensors)


def test_a_pattern_of_files_is_held_out(tmp_path: Path, letters: Tokenizer) -> None:
    for name in ("learnt.tsv", "held_a.tsv", "held_b.tsv"):
        (tmp_path / name).write_text(f"a\tb\n{name[0]}1\t{name[0]}2\n")
    corpus = Corpus(path=str(tmp_path), columns=("a", "b"))
    store = tokenise(corpus, letters, tmp_path / "ids")
    how: dict[str, Any] = {"rows": 1, "length": 9}
    batches = pair_batches(store, letters, held_out="held_*", **how)
    assert [pair for batch in batches.held_out() for pair in read_pairs([batch])] == [("h1", "h2")] * 2
    assert [read_pairs([batches.step(i)]) for i in range(2)] == [[("l1", "l2")]] * 2
    with pytest.raises(ClearheadError, match=r"no file matches .* 'test\*'; there are held_a.tsv"):
        pair_batches(store, letters, held_out="test*", **how)
    with pytest.raises(ClearheadError, match="every file matches"):
        pair_batches(store, letters, held_out="*", **how)
