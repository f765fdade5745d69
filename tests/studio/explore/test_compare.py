"""Two runs side by side, with tokens or pieces of text that both have."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.errors import UsageError
from clearhead.lens import at, zero
from clearhead.studio.explore.ablations import Ablation
from clearhead.studio.explore.compare import aligned
from clearhead.studio.explore.passes import opened
from clearhead.studio.operations import ask
from tests.studio.explore.asking import CAT, asked, run_of, studio
from tests.studio.snippets import assert_prints

HEAD = Ablation(layer=1, heads=(0,))


def test_clean_against_ablated() -> None:
    model = studio().models.get("clear-gpt")
    found = asked("explore.compare", run=run_of(), other_run=run_of(off=(HEAD,)))
    ids = torch.tensor(model.tokenizer.encode(CAT))
    edits = {"layers.1.mixer.z": at(zero, heads=[0])}
    losses = [
        torch.nn.functional.cross_entropy(clearhead.edit(model, CAT, some)[0, :-1], ids[1:], reduction="none")
        for some in ({}, edits)
    ]
    assert found.data["same_tokens"]
    assert found.data["means"] == pytest.approx([float(loss.mean()) for loss in losses], abs=1e-5)
    pieces = found.data["pieces"]
    assert pieces[0]["loss"] == [None, None]
    assert [piece["loss"][1] for piece in pieces[1:]] == pytest.approx(losses[1].tolist(), abs=1e-5)
    assert sum(piece["change"] for piece in pieces[1:]) == pytest.approx(found.data["difference"], abs=1e-6)
    assert found.data["difference"] == pytest.approx(float((losses[1] - losses[0]).sum()), abs=1e-4)
    behind = asked("explore.behind", run=run_of(), other_run=run_of(off=(HEAD,)), piece=5)
    for side, edited in ((0, {}), (1, edits)):
        p_V = clearhead.edit(model, CAT, edited)[0, 5].softmax(-1)
        assert behind.data["next"][side][0]["id"] == int(p_V.argmax())
        for row in behind.data["shared"]:
            assert row["p"][side] == pytest.approx(float(p_V[row["id"]]), abs=1e-6)
    assert_prints(behind, least=8)
    assert_prints(found, least=2)


def test_pieces_of_two_tokenizers_end_where_both_do() -> None:
    text = "The keys to the cabinet"
    one, two = run_of(text=text), run_of("clear-2l", text=text)
    found = asked("explore.compare", run=one, other_run=two)
    pieces = aligned(opened(studio(), one), opened(studio(), two))
    assert "".join(piece.text for piece in pieces) == text
    counted = [sum(len(piece.first) for piece in pieces), sum(len(piece.second) for piece in pieces)]
    # All tokens but the mark at the beginning.
    assert counted == [n - 1 for n in found.data["tokens"]]
    assert not found.data["same_tokens"]
    losses = asked("explore.losses", run=two).arrays["loss"]
    assert found.data["totals"][1] == pytest.approx(float(losses.sum()), abs=1e-4)
    assert found.data["characters"] == len(text)
    behind = asked("explore.behind", run=one, other_run=two)
    assert "shared" not in behind.data
    assert_prints(behind, least=8)
    assert found.data["per_character"][1] == pytest.approx(float(losses.sum()) / len(text), abs=1e-5)
    assert_prints(found)


def test_snapshots_of_one_model_share_their_tokens() -> None:
    runs = {"run": run_of("clear-2l@0003", text=CAT), "other_run": run_of("clear-2l", text=CAT)}
    found = asked("explore.compare", **runs)
    behind = asked("explore.behind", **runs, piece=4)
    assert found.data["same_tokens"]
    assert "shared" in behind.data
    assert_prints(found)
    assert_prints(behind)


def test_half_characters_stay_together() -> None:
    text = "ok \N{MUSICAL SYMBOL G CLEF} fine"
    pieces = aligned(opened(studio(), run_of(text=text)), opened(studio(), run_of("clear-2l", text=text)))
    assert "".join(piece.text for piece in pieces) == text
    assert any("\N{MUSICAL SYMBOL G CLEF}" in piece.text for piece in pieces)


def test_what_cannot_be_compared_is_said() -> None:
    with pytest.raises(UsageError, match="different texts"):
        asked("explore.compare", run=run_of(), other_run=run_of(text="Another text."))
    with pytest.raises(UsageError, match="fills blanks"):
        asked("explore.compare", run=run_of(), other_run=run_of("clear-bert", text=CAT))
    with pytest.raises(UsageError, match="there is no piece"):
        asked("explore.behind", run=run_of(), other_run=run_of(), piece=99)


def test_the_widest_difference_is_named() -> None:
    found = asked("explore.compare", run=run_of(), other_run=run_of(off=(HEAD,)))
    changes = [abs(piece["change"] or 0) for piece in found.data["pieces"]]
    assert changes[found.data["widest"]] == max(changes) > 0
    behind = asked("explore.behind", run=run_of(), other_run=run_of(off=(HEAD,)))
    assert (behind.data["models"], behind.data["changed"]) == (["clear-gpt", "clear-gpt"], [0, 1])


def test_a_comparison_may_be_closed_between_two_passes() -> None:
    found = ask(studio(), "explore.compare", {"run": run_of(), "other_run": run_of(off=(HEAD,))})
    assert next(found) is None  # type: ignore[call-overload]
    found.close()  # type: ignore[union-attr]
