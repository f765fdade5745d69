"""Runs that go on from a checkpoint: what they begin with, what moves, and what they leave behind."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.training.config import DataConfig, LoraConfig, ObjectiveConfig, RunConfig, StartConfig
from clearhead.training.data.documents import Corpus
from clearhead.training.recipes import recipe
from clearhead.training.run import train
from clearhead.training.settings import change
from clearhead.training.start import hash_of_source
from tests.tiny import vit
from tests.training.samples import same
from tests.training.starts import from_nothing, going_on, trained

ENCODER = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, and the run `base` on them."""
    folder = tmp_path_factory.mktemp("start")
    trained(from_nothing(folder), folder / "base")
    return folder


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


# ---- what it begins with and leaves


def test_a_run_goes_on_from_a_runs_folder_and_from_a_checkpoint_alike(place: Path, tmp_path: Path) -> None:
    first = trained(going_on(place), tmp_path / "a")
    assert first.report is not None
    base = json.loads((place / "base" / "report.json").read_text())
    assert first.report["held_out_loss_before"] == base["held_out_loss"]
    assert first.report["held_out_loss"] < first.report["held_out_loss_before"]
    second = trained(going_on(place, source=str(place / "base" / "step-000003")), tmp_path / "b")
    assert same(weights(first.model), weights(second.model))


def test_a_folder_is_written_as_it_was_found(place: Path, tmp_path: Path) -> None:
    source = tmp_path / "model"
    shutil.copytree(place / "base" / "step-000003", source, ignore=shutil.ignore_patterns("training.pt"))
    config = json.loads((source / "config.json").read_text()) | {"transformers_version": "4.0.0", "use_cache": False}
    (source / "config.json").write_text(json.dumps(config))
    (source / "generation_config.json").write_text('{"temperature": 0.5}')
    done = trained(going_on(place, source=str(source)), tmp_path / "run")
    assert done.checkpoint is not None
    written = json.loads((done.checkpoint / "config.json").read_text())
    assert written == config
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (done.checkpoint / name).read_bytes() == (source / name).read_bytes()
    loaded = clearhead.load(done.checkpoint)
    assert same(weights(loaded), weights(done.model))
    assert loaded.tokenizer.encode("the cat") == done.model.tokenizer.encode("the cat")


def test_half_precision_is_trained_in_float32(place: Path, tmp_path: Path) -> None:
    clearhead.save(clearhead.load(place / "base" / "step-000003").to(torch.bfloat16), tmp_path / "half")
    done = trained(going_on(place, source=str(tmp_path / "half")), tmp_path / "run")
    assert {p.dtype for p in done.model.parameters()} == {torch.float32}


def test_a_model_without_its_tokenizer_is_refused(place: Path, tmp_path: Path) -> None:
    source = tmp_path / "model"
    shutil.copytree(place / "base" / "step-000003", source)
    for path in source.glob("*token*"):
        path.unlink()
    with pytest.raises(ClearheadError, match=r"model has no tokenizer.*tokenizer\.json"):
        trained(going_on(place, source=str(source)), tmp_path / "run")


def test_a_model_of_pictures_is_not_given_texts(place: Path, tmp_path: Path) -> None:
    vit.classifier().save_pretrained(tmp_path / "model")
    with pytest.raises(ClearheadError, match="model reads no tokens, and the data of this run is text"):
        trained(going_on(place, source=str(tmp_path / "model")), tmp_path / "run")


def test_rows_longer_than_the_model_reads_are_refused(place: Path, tmp_path: Path) -> None:
    config = going_on(place)
    with pytest.raises(ClearheadError, match="rows have 17 tokens, and the model reads 16"):
        trained(replace(config, batch=replace(config.batch, length=17)), tmp_path / "run")


def test_a_source_that_is_not_there_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ClearheadError, match=r"there is no file or folder .*nothing"):
        trained(going_on(place, source=str(tmp_path / "nothing")), tmp_path / "run")


# ---- what moves


@pytest.mark.parametrize(
    ("patterns", "moves"),
    [(("layers.1.*",), "layers.1."), (("*.mixer.q_proj*", "norm"), ("q_proj", "norm.weight")), (None, "")],
)
def test_only_what_is_named_moves(patterns: Any, moves: Any, place: Path, tmp_path: Path) -> None:
    done = trained(going_on(place, train=patterns), tmp_path / "run")
    before = weights(clearhead.load(place / "base" / "step-000003"))
    names = [name for name, p in before.items() if not torch.equal(p, weights(done.model)[name])]

    def named(name: str) -> bool:
        if isinstance(moves, tuple):
            return moves[0] in name or name == moves[1]
        return name.startswith(moves)

    assert names == [name for name in before if named(name)]
    state = torch.load(tmp_path / "run" / "step-000003" / "training.pt", weights_only=True)
    assert len(state["optimiser"]["state"]) == len(names)


def test_a_pattern_that_names_nothing_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ClearheadError, match=r"model\.train: no weight .* 'layers\.7\.\*'; the nearest are layers\."):
        trained(going_on(place, train=("layers.7.*",)), tmp_path / "run")


# ---- fewer key-value heads


def test_key_value_heads_are_grouped_and_trained_on(place: Path, tmp_path: Path) -> None:
    done = trained(going_on(place, n_kv_heads=1), tmp_path / "run")
    assert done.checkpoint is not None and done.report is not None
    assert json.loads((done.checkpoint / "config.json").read_text())["num_key_value_heads"] == 1
    assert clearhead.load(done.checkpoint).layers[0].mixer.k_proj.weight.shape == (8, 16)
    assert done.report["held_out_loss"] < done.report["held_out_loss_before"]


# ---- a new head


@pytest.fixture(scope="module")
def encoder(place: Path) -> Path:
    """A tiny encoder, with a tokenizer of words, that has no head."""
    from clearhead.families import FAMILIES
    from clearhead.model.build import build
    from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer

    family = next(
        f for f in FAMILIES.values() if any(name.endswith("ForNextSentencePrediction") for name in f.architectures)
    )
    raw = {"model_type": family.model_type, "architectures": [family.architectures[0]], **ENCODER}
    model = build(family.read(raw, "here"))
    model.tokenizer = train_tokenizer(
        [f"good bad fine cat {i}" for i in range(9)], TokenizerConfig(kind="wordpiece", size=90)
    )
    clearhead.save(model, place / "encoder", family=family.model_type)
    return place / "encoder"


def labelled(folder: Path, names: tuple[str, ...]) -> DataConfig:
    folder.mkdir(exist_ok=True)
    lines = ["text\tkind", *(f"{('good', 'bad', 'fine')[i % 3]} cat {i}\t{names[i % 3]}" for i in range(45))]
    (folder / "t.tsv").write_text("\n".join(lines) + "\n")
    return DataConfig(corpus=Corpus(path=str(folder / "t.tsv"), label="kind"), held_out=0.2)


def classifier(place: Path, encoder: Path, data: DataConfig, **start: Any) -> Any:
    config = replace(from_nothing(place), data=data, objective=ObjectiveConfig(name="labels"))
    named = {"architecture": "BertForSequenceClassification", "new_head": True, **start}
    return replace(config, model=StartConfig(source=str(encoder), **named))


def test_a_new_head_has_the_labels_of_the_data_and_their_names(place: Path, encoder: Path, tmp_path: Path) -> None:
    data = labelled(tmp_path / "texts", ("nice", "awful", "plain"))
    config = replace(classifier(place, encoder, data), run=RunConfig(steps=70))
    done = trained(config, tmp_path / "run")
    assert done.checkpoint is not None and done.report is not None
    written = json.loads((done.checkpoint / "config.json").read_text())
    assert written["id2label"] == {"0": "awful", "1": "nice", "2": "plain"}
    assert written["label2id"] == {"awful": 0, "nice": 1, "plain": 2}
    assert written["architectures"] == ["BertForSequenceClassification"]
    assert done.report["accuracy"] == 1.0
    ids = torch.tensor([done.model.tokenizer.encode("bad cat 7")])
    assert int(clearhead.load(done.checkpoint)(ids).argmax()) == 0

    # Its own head goes on with its own names in their order, whatever the alphabet of the data says.
    renamed = json.loads((done.checkpoint / "config.json").read_text())
    renamed["id2label"] = {"0": "b-awful", "1": "a-nice", "2": "c-plain"}
    (done.checkpoint / "config.json").write_text(json.dumps(renamed))
    others = labelled(tmp_path / "others", ("a-nice", "b-awful", "c-plain"))
    on = classifier(place, done.checkpoint, others, architecture=None, new_head=False)
    again = trained(on, tmp_path / "again")
    assert again.report is not None and again.report["held_out_loss_before"] < 0.3

    # And one of other labels takes its place.
    two = labelled(tmp_path / "two", ("yes", "no", "no"))
    other = trained(classifier(place, done.checkpoint, two), tmp_path / "other")
    assert other.model.config.heads.labels[0][1].n_labels == 2


def test_beside_adapters_a_new_head_is_trained(place: Path, encoder: Path, tmp_path: Path) -> None:
    data = labelled(tmp_path / "texts", ("nice", "awful", "plain"))
    done = trained(classifier(place, encoder, data, lora=LoraConfig(rank=2)), tmp_path / "run")
    state = torch.load(tmp_path / "run" / "step-000003" / "training.pt", weights_only=True)
    moving = {name for name in state["weights"] if ".lora_" not in name}
    assert moving == {"labels.classes.weight", "labels.classes.bias"}
    assert bool(done.model.labels["classes"].bias.any())
    before = weights(clearhead.load(encoder))
    assert torch.equal(weights(done.model)["pool.transform.dense.weight"], before["pool.transform.dense.weight"])


def test_numbers_are_regressed_by_a_head_of_one(place: Path, encoder: Path, tmp_path: Path) -> None:
    config = classifier(place, encoder, labelled(tmp_path / "texts", ("0.5", "-1", "2")))
    done = trained(replace(config, objective=ObjectiveConfig(name="regress")), tmp_path / "run")
    assert done.model.config.heads.labels[0][1].n_labels == 1


def test_a_head_that_is_not_there_needs_to_be_asked_for(place: Path, encoder: Path, tmp_path: Path) -> None:
    data = labelled(tmp_path / "texts", ("x", "y", "z"))
    with pytest.raises(ClearheadError, match="new_head"):
        trained(classifier(place, encoder, data, new_head=False), tmp_path / "run")


# ---- going on after a stop


def stopped_and_resumed(config: Any, folder: Path) -> tuple[Any, Any]:
    """The same run straight, and in two parts."""
    config = replace(config, run=replace(config.run, steps=6), every=replace(config.every, save=3))
    straight = trained(config, folder / "straight")
    trained(replace(config, run=replace(config.run, steps=3)), folder / "parts")
    return straight, trained(config, folder / "parts", resume=True)


def test_a_resumed_run_is_bit_equal(place: Path, tmp_path: Path) -> None:
    config = going_on(place, train=("layers.1.*",))
    straight, resumed = stopped_and_resumed(config, tmp_path)
    assert same(weights(straight.model), weights(resumed.model))
    assert straight.report["held_out_loss_before"] == resumed.report["held_out_loss_before"]


def test_a_source_that_has_changed_is_refused_and_one_that_has_moved_is_not(place: Path, tmp_path: Path) -> None:
    source = tmp_path / "model"
    shutil.copytree(place / "base" / "step-000003", source)
    config = going_on(place, source=str(source))
    trained(config, tmp_path / "run")
    moved = tmp_path / "moved"
    source.rename(moved)
    more = replace(config, model=StartConfig(source=str(moved)), run=RunConfig(steps=4))
    assert trained(more, tmp_path / "run", resume=True).steps == 4
    model = clearhead.load(moved)
    with torch.no_grad():
        model.embed.tokens.weight[3, 3] += 1e-3
    clearhead.save(model, moved)
    with pytest.raises(ClearheadError, match=r"began from another model: model\.source is"):
        trained(replace(more, run=RunConfig(steps=5)), tmp_path / "run", resume=True)


def test_a_hash_is_of_the_content(place: Path, tmp_path: Path) -> None:
    source = place / "base" / "step-000003"
    shutil.copytree(source, tmp_path / "copy")
    assert hash_of_source(str(tmp_path / "copy")) == hash_of_source(str(place / "base")) == hash_of_source(str(source))
    (tmp_path / "copy" / "tokenizer_config.json").write_text("{}")
    assert hash_of_source(str(tmp_path / "copy")) != hash_of_source(str(source))


# ---- the recipe


def test_the_recipe_says_what_it_has_to_be_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--set model\.source=\.\.\. --set data\.corpus\.path=\.\.\.$"):
        train("finetune", out=tmp_path, quiet=True)
    with pytest.raises(UsageError, match=r"on: --set data\.corpus\.path=\.\.\.$"):
        train("finetune", settings=("model.source=x",), out=tmp_path, quiet=True)


def test_the_recipe_trains_what_it_is_told(place: Path, tmp_path: Path) -> None:
    told = (
        f"model.source={place / 'base'}",
        f"data.corpus.path={place / 'texts' / 't.txt'}",
        "data.corpus.format=lines",
        "batch.length=16",
        "run.steps=2",
        'model.train=["layers.0"]',
    )
    done = train("finetune", settings=told, out=tmp_path / "run", quiet=True)
    assert done.steps == 2 and done.report is not None and "held_out_loss_before" in done.report


def test_a_part_that_may_be_left_out_comes_with_the_first_setting_of_it() -> None:
    config = change(recipe("finetune"), ("model.lora.rank=3", "objective.teacher.source=x"))
    assert config.model.lora.rank == 3 and config.objective.teacher.source == "x"
    with pytest.raises(UsageError, match=r"no setting 'model\.lora\.ranks'; the nearest"):
        change(recipe("finetune"), ("model.lora.ranks=3",))
