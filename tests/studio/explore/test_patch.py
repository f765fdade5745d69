"""Values of one run in another."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import at, logit_difference, look, patch, patching
from tests.studio.explore.asking import CAT, DOG, all_of, asked, run_of, studio
from tests.studio.snippets import assert_prints


@pytest.mark.parametrize(
    ("site", "over", "noising"),
    [("resid_pre", "position", False), ("mixer.z", "head", True), ("ffn.out", "position", False)],
)
def test_the_sweep_is_that_of_the_library(site: str, over: str, noising: bool) -> None:
    model = studio().models.get("clear-gpt")
    how = {"site": site, "over": over, "noising": noising}
    answers = all_of("explore.patch-sweep", run=run_of(), other_run=run_of(text=DOG), token=" the", against=" a", **how)
    whole = patching(model, CAT, DOG, logit_difference(model, " the", " a"), **how)  # type: ignore[arg-type]
    last = answers[-1]
    assert torch.allclose(last.arrays["values"].double(), whole.values, atol=1e-5)
    assert [answer.data["done"] for answer in answers] == [1, 2, 3, 4]
    assert last.data["columns"] == whole.column_labels
    assert_prints(last, least=3)


def test_all_of_the_stream_carries_the_whole_answer() -> None:
    found = asked(
        "explore.patch", run=run_of(), other_run=run_of(text=DOG), place={"layer": 0}, token=" the", against=" a"
    )
    assert found.data["share"] == pytest.approx(1.0, abs=1e-4)
    assert found.data["patched"] == pytest.approx(found.data["clean"], abs=1e-4)
    assert_prints(found)


def test_the_answer_may_stand_anywhere() -> None:
    model = studio().models.get("clear-gpt")
    runs = {"run": run_of(), "other_run": run_of(text=DOG), "token": " the", "against": " a", "position": 8}
    metric = logit_difference(model, " the", " a", 8)
    found = asked("explore.patch-sweep", **runs)
    assert torch.allclose(found.arrays["values"].double(), patching(model, CAT, DOG, metric).values, atol=1e-4)
    assert_prints(found)
    assert_prints(asked("explore.patch", **runs, place={"layer": 1, "positions": [3]}))


@pytest.mark.parametrize("noising", [False, True])
def test_one_patch_is_one_cell_of_the_sweep(noising: bool) -> None:
    runs = {"run": run_of(), "other_run": run_of(text=DOG), "token": " the", "against": " a", "noising": noising}
    swept = asked("explore.patch-sweep", **runs)
    one = asked("explore.patch", **runs, place={"layer": 2, "positions": [3]})
    assert one.data["share"] == pytest.approx(float(swept.arrays["values"][2, 3]), abs=1e-4)
    assert_prints(one)


def test_a_head_alone() -> None:
    model = studio().models.get("clear-gpt")
    runs = {"run": run_of(), "other_run": run_of(text=DOG), "token": " the", "against": " a"}
    one = asked("explore.patch", **runs, place={"layer": 1, "site": "mixer.z", "heads": [2]})
    seen = look(model, CAT, "layers.1.mixer.z")
    logits = clearhead.edit(model, DOG, {"layers.1.mixer.z": at(patch(seen), heads=[2])})[0, -1]
    first, second = (model.tokenizer.encode(text, bos=False)[0] for text in (" the", " a"))
    assert one.data["patched"] == pytest.approx(float(logits[first] - logits[second]), abs=1e-5)
    assert one.data["rows"][0]["patched"] == pytest.approx(float(logits.softmax(-1)[first]), abs=1e-6)
    assert_prints(one)


def test_a_decoder_beside_an_encoder() -> None:
    runs = [run_of("clear-translate", source=f"two hundred and {n} one", text="deux") for n in ("forty", "sixty")]
    found = asked("explore.patch-sweep", run=runs[0], other_run=runs[1], site="cross.z", over="head")
    assert found.arrays["values"].shape == (2, 4)
    assert_prints(found)


def test_a_model_that_fills_blanks_is_asked_in_its_blank() -> None:
    texts = [f"The {word} was at sea, and the [MASK] looked at the water." for word in ("ship", "whale")]
    runs = dict(zip(("run", "other_run"), (run_of("clear-bert", text=text) for text in texts), strict=True))
    found = asked("explore.patch-sweep", **runs)
    assert found.data["at"] > 0
    assert_prints(found)
    assert_prints(asked("explore.patch", **runs, place={"layer": 1, "positions": [2]}))
    with pytest.raises(UsageError, match="hide the word"):
        asked("explore.patch", run=run_of("clear-bert", text="A cat."), other_run=run_of("clear-bert", text="A dog."))


def test_what_cannot_be_patched_is_said() -> None:
    short = run_of(text="A cat.")
    with pytest.raises(ClearheadError, match="reword one to have as many tokens"):
        asked("explore.patch", run=run_of(), other_run=short)
    with pytest.raises(UsageError, match="not kept by head"):
        asked("explore.patch-sweep", run=run_of(), other_run=run_of(text=DOG), site="ffn.out", over="head")
    with pytest.raises(UsageError, match=r"has no cross\.z"):
        asked("explore.patch-sweep", run=run_of(), other_run=run_of(text=DOG), site="cross.z", over="head")
    with pytest.raises(UsageError, match="same token"):
        asked("explore.patch", run=run_of(), other_run=run_of(text=DOG), token=" a", against=" a")
    with pytest.raises(UsageError, match="one model"):
        asked("explore.patch", run=run_of(), other_run=run_of("clear-2l", text=CAT))
    with pytest.raises(ClearheadError, match="no difference to"):
        asked("explore.patch-sweep", run=run_of(), other_run=run_of())
