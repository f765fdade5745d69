"""Chapter 6: the diagram, its parts on a text, and the small figures, against the library and by hand."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import clearhead
from clearhead.claims.block.gradient_by_depth import first_gradients, last_gradient
from clearhead.claims.block.two_thirds import STANDARD, share_in_mlp
from clearhead.errors import ClearheadError, UsageError
from clearhead.studio.context import Studio
from clearhead.studio.lesson.block import diagram as block
from clearhead.studio.lesson.block import fed as block_fed
from clearhead.studio.lesson.block import fed_picture as block_fed_picture
from clearhead.studio.lesson.block import fed_sound as block_fed_sound
from clearhead.studio.lesson.block import norms as block_norms
from clearhead.studio.lesson.block import opened as block_opened
from clearhead.studio.lesson.block import reading as block_pass
from clearhead.studio.lesson.block.drawn_clothes import SHAPES, drawn
from clearhead.studio.lesson.drawing import DRAWING
from clearhead.studio.models import Models
from clearhead.studio.run_folders import RunFolders
from tests.studio.snippets import assert_prints

torch.set_num_threads(1)

SMALL = ("clear-gpt", "clear-bert", "clear-2l", "antiberty")
TEXT = "The President of the United States"


@pytest.fixture(scope="module")
def studio() -> Studio:
    return Studio(models=Models(), runs=cast(Any, None))


# ---- the diagram


@pytest.mark.parametrize("model", SMALL)
def test_the_boxes_have_all_the_parameters(studio: Studio, model: str) -> None:
    found = block.diagram(studio, model=model, text="EVQL" if model == "antiberty" else TEXT).data
    boxes = [found["embed"], *(part for layer in found["layers"] for part in layer), *found["end"]]
    assert sum(box["n_parameters"] for box in boxes) == found["total"]
    assert found["total"] == sum(p.numel() for p in clearhead.load(model).parameters())
    assert all(box["formula"] and box["told"] and box["gives"] for box in boxes)


def test_the_boxes_of_a_pre_norm_block_and_of_a_post_norm_one(studio: Studio) -> None:
    pre = [part["id"] for part in block.diagram(studio, model="clear-gpt").data["layers"][0]]
    assert pre == ["mixer.pre", "mixer", "mixer.add", "ffn.pre", "ffn", "ffn.add"]
    post = [part["id"] for part in block.diagram(studio, model="antiberty", text="EVQL").data["layers"][0]]
    assert post == ["mixer", "mixer.add", "mixer.after", "ffn", "ffn.add", "ffn.after"]
    assert [part["kind"] for part in block.diagram(studio, model="clear-2l").data["layers"][0]] == [
        "norm",
        "attention",
        "add",
    ]


def test_the_stream_at_every_step_is_that_of_the_pass(studio: Studio) -> None:
    found = block.diagram(studio, text=TEXT, token=3).data
    seen = clearhead.look(clearhead.load("clear-gpt"), TEXT, "layers.*.resid_mid", "layers.*.resid_post", "*.out")
    for step in found["steps"]:
        after = "resid_mid" if step["kind"] == "mixer" else "resid_post"
        assert step["stream"] == pytest.approx(float(seen[f"layers.{step['layer']}.{after}"][0, 3].norm()), rel=1e-6)
        out = seen[f"layers.{step['layer']}.{step['kind']}.out"]
        assert step["correction"] == pytest.approx(float(out[0, 3].norm()), rel=1e-6)


def test_before_plus_correction_is_the_sum_exactly(studio: Studio) -> None:
    for layer in range(4):
        for part in ("mixer.add", "ffn.add"):
            found = block_opened.part(studio, layer=layer, part=part, token=2)
            v = found.arrays
            assert torch.equal(cast(Any, v["v0"]) + v["v1"], v["v2"]) and found.data["off"] == 0
            assert found.data["sum_of_parts"]["off"] <= 1e-5 * found.data["sum_of_parts"]["largest"]
            assert found.data["sum_of_parts"]["n"] == 2 * layer + (1 if part == "mixer.add" else 2)


def test_after_a_norm_the_stream_is_no_plain_sum(studio: Studio) -> None:
    found = block_opened.part(studio, model="antiberty", text="EVQL", part="mixer.add")
    assert found.data["off"] is None and found.data["sum_of_parts"] is None
    after = block_opened.part(studio, model="antiberty", text="EVQL", part="mixer.after")
    seen = clearhead.look(clearhead.load("antiberty"), "EVQL", "layers.1.resid_mid")
    np.testing.assert_allclose(after.arrays["v1"], seen["layers.1.resid_mid"][0, -1], atol=1e-6)


@pytest.mark.parametrize("model", SMALL)
def test_every_part_opens_and_its_code_prints_its_numbers(studio: Studio, model: str) -> None:
    text = "EVQLVQ" if model == "antiberty" else TEXT
    found = block.diagram(studio, model=model, text=text)
    assert_prints(found)
    parts = ["embed", *(part["id"] for part in found.data["layers"][1]), *(part["id"] for part in found.data["end"])]
    for part in parts:
        assert_prints(block_opened.part(studio, model=model, text=text, part=part, layer=1, token=2))


def test_patterns_are_rows_that_sum_to_one_and_shares_of_the_head_too(studio: Studio) -> None:
    found = block_opened.part(studio, part="mixer", layer=2, token=4)
    np.testing.assert_allclose(cast(Any, found.arrays["pattern"]).sum(-1), 1, atol=1e-6)
    best = block_opened.part(studio, part="head", text=TEXT).data["next"]
    with torch.no_grad():
        logits = clearhead.load("clear-gpt")
        share = logits(torch.tensor([logits.tokenizer.encode(TEXT)]))[0, -1].softmax(-1)
    assert best[0]["share"] == pytest.approx(float(share.max()), rel=1e-6)


@pytest.mark.parametrize("part", ["nothing", "cross", "mixer.after", "<script>", "final.add"])
def test_a_part_that_is_not_there_is_refused_by_name(studio: Studio, part: str) -> None:
    with pytest.raises(UsageError, match="has no part"):
        block_opened.part(studio, part=part)


def test_texts_and_models_that_do_not_fit_are_refused(studio: Studio) -> None:
    for model, text, why in (
        ("clear-gpt", "  ", "no text"),
        ("clear-vit", TEXT, "reads text"),
        ("clear-translate", TEXT, "reads text"),
        ("../etc", TEXT, "no model"),
    ):
        with pytest.raises(ClearheadError, match=why):
            block.diagram(studio, model=model, text=text)


def test_a_long_text_is_cut_and_says_so(studio: Studio) -> None:
    found = block.diagram(studio, text="word " * 110, token=400).data
    assert found["cut"] and len(found["tokens"]) == block_pass.MOST_TOKENS == found["token"] + 1


def test_the_models_on_offer_are_stacks_that_read_text(studio: Studio) -> None:
    offered = block.models(studio).data["models"]
    assert {"clear-gpt", "clear-bert", "clear-2l"} <= set(offered)
    assert not {"clear-vit", "clear-speech", "clear-translate"} & set(offered)


# ---- the small figures


def test_gradients_at_the_start_are_the_claims(studio: Studio) -> None:
    found = block_norms.placement(depth=6)
    assert found.data["last_pre"] == pytest.approx(last_gradient("pre", 6, seed=0), rel=1e-6)
    assert found.data["last_post"] == pytest.approx(last_gradient("post", 6, seed=0), rel=1e-6)
    assert found.data["fallen_pre"] < 0.75 < found.data["fallen_post"]
    assert_prints(block_norms.placement(depth=4), least=4)


def test_a_figure_does_not_move_the_generator_of_the_process() -> None:
    before = torch.random.get_rng_state()
    block_norms.placement(depth=3)
    assert torch.equal(before, torch.random.get_rng_state())


def test_figures_draw_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two networks made at once would share out the numbers of one generator, and a wrong one would be kept."""
    alone = [block_norms.placement(depth=depth).printed for depth in (3, 4, 5)]
    held: list[bool] = []

    def drawing(*args: Any) -> list[float]:
        # An RLock is free for the thread that holds it: another one tries.
        other = threading.Thread(target=lambda: held.append(not DRAWING.acquire(blocking=False)))
        other.start()
        other.join()
        return first_gradients(*args)

    monkeypatch.setattr(block_norms, "first_gradients", drawing)
    block_norms._gradients.cache_clear()
    found: dict[int, tuple[float, ...]] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: block_norms.placement(depth=n).printed}))
        for n in (3, 4, 5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[depth] for depth in (3, 4, 5)] == alone
    assert held and all(held)


def test_the_gradients_are_those_of_each_layer() -> None:
    """Of the third of four layers, by a pass of its own."""
    found = block_norms.placement(depth=4)
    (third,) = first_gradients("post", 4, 0, [2])
    assert float(cast(Any, found.arrays["post"])[2]) == pytest.approx(third, rel=1e-6)


def test_both_norms_of_a_vector_by_hand() -> None:
    found = block_norms.norm(shift=2.0, stretch=0.5, seed=1)
    x = np.asarray(found.arrays["x"], dtype=np.float64)
    np.testing.assert_allclose(found.arrays["layer"], (x - x.mean()) / np.sqrt(x.var() + 1e-5), atol=1e-5)
    np.testing.assert_allclose(found.arrays["rms"], x / np.sqrt((x**2).mean() + 1e-5), atol=1e-5)
    assert abs(found.data["layer"]["mean"]) < 1e-6 < abs(found.data["rms"]["mean"])
    assert_prints(found, least=7)


def test_a_shift_changes_what_rms_norm_gives_and_not_layer_norm() -> None:
    still, moved = block_norms.norm(shift=0.0), block_norms.norm(shift=3.0)
    np.testing.assert_allclose(still.arrays["layer"], moved.arrays["layer"], atol=1e-4)
    assert np.abs(np.asarray(still.arrays["rms"]) - np.asarray(moved.arrays["rms"])).max() > 0.1


def test_a_gate_costs_nothing() -> None:
    found = block_norms.activations(width=768, x=0.0, up=2.0)
    assert found.data["plain_parameters"] == found.data["gated_parameters"] == 8 * 768**2
    assert found.data["gelu"] == found.data["gated"] == 0
    assert block_norms.activations(x=1.0).data["gelu"] == pytest.approx(0.8413447, abs=1e-6)  # x times P(N < x)
    assert_prints(block_norms.activations(x=-1.3, up=0.7, width=256), least=4)


def test_two_thirds_of_a_standard_block_are_in_its_mlp() -> None:
    for config, where in STANDARD.values():
        if where == "layers":
            assert block_norms.parameters(model=config).data["share"] == pytest.approx(share_in_mlp(config, where))


def test_every_shipped_config_can_be_counted() -> None:
    for name in block_norms.parameters().data["models"]:
        found = block_norms.parameters(model=name)
        assert sum(part["size"] for part in found.data["parts"]) == found.data["total"]
        assert len(found.printed) == len(found.data["parts"]) + 1 + (found.data["blocks"] > 0)
    assert_prints(block_norms.parameters(model="mixtral-8x7b"), least=5)
    shared = block_norms.parameters(model="albert-base-v2")
    assert shared.data["blocks"] == 0 and not shared.data["two_thirds"]  # and no share of nothing is printed
    assert_prints(shared, least=3)
    assert block_norms.parameters(model="bert-base").data["two_thirds"]
    assert not block_norms.parameters(model="llama3-8b").data["two_thirds"]
    with pytest.raises(UsageError, match="no shipped config"):
        block_norms.parameters(model="/etc/passwd")


def test_the_mlp_takes_nothing_from_other_tokens() -> None:
    found = block_norms.alone(text="Each token alone.")
    assert found.data["mlp_others"] == 0 and found.data["attention_others"] > 1e-3
    off = np.asarray(found.arrays["mlp"]) - np.diag(np.diag(np.asarray(found.arrays["mlp"])))
    assert not off.any()
    assert_prints(found, least=2)
    with pytest.raises(UsageError, match="fit here"):
        block_norms.alone(text="one two three four five six seven eight nine ten eleven twelve thirteen")


# ---- the same block fed


def test_one_block_reads_four_kinds_of_input(studio: Studio) -> None:
    found = [
        block_fed.text(studio).data,
        block_fed_picture.picture(studio).data,
        block_fed_sound.sound(studio).data,
        block_fed.protein(studio).data,
    ]
    assert {one["module"] for one in found} == {"Block"} and len({one["module_path"] for one in found}) == 1
    assert [one["input"] for one in found] == ["text", "picture", "sound", "protein"]
    assert [one["n_tokens"] for one in found] == [6, 17, 75, 42]
    for one in found:
        assert len(one["tokens"]) == one["n_tokens"] and one["block_parameters"] > 0


@pytest.mark.parametrize(
    ("index", "name"), list(enumerate(["Trouser", "T-shirt/top", "Dress", "Bag", "Sneaker", "Ankle boot"]))
)
def test_drawn_clothes_are_told_apart(studio: Studio, index: int, name: str) -> None:
    found = block_fed_picture.picture(studio, index=index)
    assert found.data["answers"][0]["name"] == name
    assert drawn(list(SHAPES)[index]).shape == (28, 28)
    assert_prints(found, least=4)


@pytest.mark.parametrize(("number", "words"), [(42, "forty two"), (2017, "two thousand and seventeen")])
def test_shipped_sounds_are_written_down(studio: Studio, number: int, words: str) -> None:
    found = block_fed_sound.sound(studio, number=number)
    assert found.data["written"] == words and found.arrays["frames"].shape == (40, 150)
    assert found.data["seconds"] == found.arrays["samples"].shape[0] / found.data["rate"] < found.data["hears"] == 3
    assert found.data["tokens"][:2] == ["0.00 s", "0.04 s"] and found.data["tokens"][-1] == "2.96 s"
    assert found.data["decoder_layers"] == len(clearhead.load("clear-speech").layers)


def test_a_number_that_nothing_here_can_speak_is_refused(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    block_fed_sound._spoken.cache_clear()
    with pytest.raises(UsageError, match="espeak-ng"):
        block_fed_sound.sound(studio, number=8123)


def test_a_hidden_residue_is_told(studio: Studio) -> None:
    found = block_fed.protein(studio)
    assert found.data["there"] == "C" == found.data["answers"][0]["name"]
    for sequence in ("", "  ", "EVQB1", "<b>"):
        with pytest.raises(UsageError, match=r"no residue"):
            block_fed.protein(studio, sequence=sequence)


def test_the_code_of_each_input_prints_its_numbers(studio: Studio) -> None:
    assert_prints(block_fed.text(studio, text="The cat sat"), least=4)
    assert_prints(block_fed_sound.sound(studio, number=42), least=2)
    assert_prints(block_fed.protein(studio, sequence="EVQLVQSGPEV", hidden=3), least=5)


def test_the_code_names_what_was_given_on_the_command_line() -> None:
    folder = str(clearhead.load("clear-2l").origin.where)
    studio = Studio(models=Models([folder]), runs=cast(Any, None))
    found = block.diagram(studio, model=studio.models.named[0], text="A few words")
    assert folder in found.python
    assert_prints(found)


# ---- what is kept


def test_a_pass_is_made_once_and_its_model_is_not_kept(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def counted(*args: Any) -> Any:
        calls.append(args)
        return clearhead.look(*args)

    monkeypatch.setattr(block_pass, "look", counted)
    text = "A text that no other test reads"
    for layer in (0, 1, 2):
        block_opened.part(studio, text=text, layer=layer)
    block.diagram(studio, text=text)
    assert len(calls) == 1
    for reading in block_pass._readings._values.values():
        assert not hasattr(reading, "model") and not hasattr(reading, "additions")


def test_a_run_begun_anew_is_read_anew(tmp_path: Path) -> None:
    """Its folder and its id are the same: only when it was written tells the two apart."""
    kept = tmp_path / "runs" / "one" / "snapshots" / "0001"
    kept.mkdir(parents=True)
    (tmp_path / "runs" / "one" / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    model = clearhead.load("clear-2l")
    clearhead.save(model, kept)
    studio = Studio(models=Models(runs=RunFolders([tmp_path / "runs"])), runs=cast(Any, None))
    (id,) = [f"{run.id}@{one.name}" for run in studio.models.runs.all() for one in run.kept()]
    before = block.diagram(studio, model=id, text=TEXT).data["start"]
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)
    shutil.rmtree(kept)
    clearhead.save(model, kept)
    os.utime(kept, ns=(1, 2))
    assert block.diagram(studio, model=id, text=TEXT).data["start"] == pytest.approx(2 * before)


def test_what_is_opened_says_which_part_of_which_text_it_is(studio: Studio) -> None:
    found = block_opened.part(studio, model="clear-bert", text="A b", layer=99, part="ffn.add", token=1).data
    assert (found["model"], found["layer"], found["box"], found["slot"]) == ("clear-bert", 5, "ffn.add", 1)
    assert found["tokens"] == block.diagram(studio, model="clear-bert", text="A b").data["tokens"]
