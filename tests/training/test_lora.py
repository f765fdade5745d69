"""Adapters by peft: the same numbers as on the model of `transformers`, whole models in every checkpoint, and a run
that goes on to the last bit.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError
from clearhead.training.config import LoraConfig
from clearhead.training.lora import adapted, add_lora, merged, projections, write_adapter
from tests.oracles import TOLERANCE, close, error
from tests.tiny import llama, mamba, whisper
from tests.training.samples import same
from tests.training.starts import from_nothing, going_on, trained

TOKENS_BT = torch.tensor([[5, 17, 3, 88, 42, 7, 61, 20], [9, 9, 71, 2, 33, 54, 12, 80]])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, and the run `base` on them."""
    folder = tmp_path_factory.mktemp("lora")
    trained(from_nothing(folder), folder / "base")
    return folder


def twins(folder: Path) -> tuple[Any, Any]:
    """One tiny model, of `transformers` and here."""
    torch.manual_seed(0)
    theirs = llama.make()
    theirs.save_pretrained(folder / "model")
    return theirs, clearhead.load(folder / "model")


def drawn(model: Any, seed: int = 1) -> None:
    """Numbers in both matrices of every adapter: the second is zeros at first."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if ".lora_" in name:
                p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.1)


def adapters(model: Any) -> list[Any]:
    return [p for name, p in model.named_parameters() if ".lora_" in name]


def test_loss_and_gradients_are_those_of_the_same_adapters_on_transformers(tmp_path: Path) -> None:
    import peft
    import torch.nn.functional as F

    theirs, ours = twins(tmp_path)
    add_lora(ours, LoraConfig(rank=4, alpha=12.0, targets=("*.q_proj", "*.v_proj", "*.down_proj")))
    named = ["q_proj", "v_proj", "down_proj"]
    said = peft.LoraConfig(r=4, lora_alpha=12.0, target_modules=named)
    peft.inject_adapter_in_model(said, theirs)
    for model in (theirs, ours):
        drawn(model)
        model.train()
    assert len(adapters(ours)) == 2 * 3 * len(ours.layers)
    for a, b in zip(adapters(ours), adapters(theirs), strict=True):
        assert torch.equal(a, b)
    losses = []
    for logits_BTV in (ours(TOKENS_BT), theirs(TOKENS_BT).logits):
        loss = F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), TOKENS_BT[:, 1:].flatten())
        loss.backward()
        losses.append(loss)
    assert close(losses[0], losses[1])
    for name, p in ours.named_parameters():
        if ".lora_" not in name:
            assert p.grad is None and not p.requires_grad
    for p, q in zip(adapters(ours), adapters(theirs), strict=True):
        assert p.grad is not None and error(p.grad, q.grad) <= TOLERANCE[torch.float32]


def test_a_merged_model_computes_the_same_and_the_adapted_one_stays(tmp_path: Path) -> None:
    ours = twins(tmp_path)[1]
    plain_BTV = ours(TOKENS_BT)
    add_lora(ours, LoraConfig(rank=4, targets=("*.q_proj", "*.v_proj", "*.up_proj")))
    # Not to the bit: what is frozen takes no gradient, and goes by another kernel where rows are few.
    assert close(ours(TOKENS_BT), plain_BTV)
    drawn(ours)
    before = {name: p.detach().clone() for name, p in ours.named_parameters()}
    whole = merged(ours)
    assert error(ours(TOKENS_BT), plain_BTV) > 0.01
    assert close(whole(TOKENS_BT), ours(TOKENS_BT))
    assert not adapted(whole) and merged(whole) is whole
    assert same(dict(ours.named_parameters()), before)
    assert whole.layers[0].mixer.k_proj.weight is ours.layers[0].mixer.k_proj.weight

    clearhead.save(whole, tmp_path / "saved")
    with torch.no_grad():  # which product is fastest depends on what wants a gradient
        assert torch.equal(clearhead.load(tmp_path / "saved")(TOKENS_BT), whole(TOKENS_BT))


def test_cached_decoding_of_a_merged_model_is_that_of_the_adapted_one(tmp_path: Path) -> None:
    ours = twins(tmp_path)[1]
    add_lora(ours, LoraConfig(targets=("*.mixer.*_proj",)))
    drawn(ours)
    with torch.no_grad():
        state = merged(ours).new_state()
        pieces = [merged(ours)(TOKENS_BT[:, at : at + 1], state=state) for at in range(TOKENS_BT.shape[1])]
        assert close(torch.cat(pieces, dim=1), ours(TOKENS_BT))


def test_the_adapter_by_itself_loads_in_peft(tmp_path: Path) -> None:
    import peft

    theirs, ours = twins(tmp_path)
    config = LoraConfig(rank=4, alpha=12.0, targets=("layers.1.mixer.q_proj", "*.down_proj"))
    add_lora(ours, config)
    drawn(ours)
    assert write_adapter(ours, config, tmp_path / "adapter")
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter")
    assert len(adapters(theirs)) == len(adapters(ours)) == 2 * (1 + len(ours.layers))
    assert close(ours(TOKENS_BT), theirs(TOKENS_BT).logits)


# ---- which projections


def test_targets_of_the_decoder_leave_the_encoder_alone(tmp_path: Path) -> None:
    whisper.make().save_pretrained(tmp_path / "model")
    model = clearhead.load(tmp_path / "model")
    add_lora(model, LoraConfig(targets=("layers.*.q_proj",)))
    names = {name.split(".lora_")[0] for name, _ in model.named_parameters() if ".lora_" in name}
    assert names == set(projections(clearhead.load(tmp_path / "model"), ("layers.*.q_proj",)))
    assert not any(name.startswith("encoder") for name in names)


def test_targets_that_are_not_there_are_refused_with_the_nearest(tmp_path: Path) -> None:
    ours = twins(tmp_path)[1]
    with pytest.raises(
        ClearheadError, match=r"model\.lora\.targets: no projection .* '\*\.qproj'; the nearest are .*q_proj"
    ):
        add_lora(ours, LoraConfig(targets=("*.qproj",)))
    with pytest.raises(ClearheadError, match="no projection"):
        add_lora(ours, LoraConfig(targets=("embed",)))


def test_a_projection_that_is_read_by_hand_is_refused(tmp_path: Path) -> None:
    mamba.make().save_pretrained(tmp_path / "model")
    model = clearhead.load(tmp_path / "model")
    with pytest.raises(ClearheadError, match=r"layers\.0\.mixer\.dt_proj, whose weights enter a formula"):
        add_lora(model, LoraConfig(targets=("*.dt_proj",)))
    # All others are called, so that each of their adapters takes a gradient.
    add_lora(model, LoraConfig(targets=("*.in_proj", "*.x_proj", "*.out_proj")))
    drawn(model)
    model(TOKENS_BT).sum().backward()
    assert all(bool(p.grad.any()) for p in adapters(model))


def test_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ClearheadError, match=r'pip install "clearhead\[train\]"'):
        add_lora(twins(tmp_path)[1], LoraConfig())


# ---- whole runs


def test_only_adapters_move_and_a_checkpoint_is_a_whole_model(place: Path, tmp_path: Path) -> None:
    base = clearhead.load(place / "base" / "step-000003")
    done = trained(going_on(place, lora=LoraConfig(rank=2)), tmp_path / "run")
    assert done.checkpoint is not None and done.report is not None
    assert done.report["held_out_loss"] < done.report["held_out_loss_before"]
    loaded = clearhead.load(done.checkpoint)
    moved = [n for (n, p), q in zip(base.named_parameters(), loaded.parameters(), strict=True) if not torch.equal(p, q)]
    assert moved == [f"layers.{i}.mixer.{which}_proj.weight" for i in range(2) for which in "qv"]
    assert same(dict(loaded.named_parameters()), dict(done.model.named_parameters()))
    assert (tmp_path / "run" / "adapter" / "adapter_config.json").is_file()
    state = torch.load(done.checkpoint / "training.pt", weights_only=True)
    assert len(state["optimiser"]["state"]) == len(state["weights"]) == 8


@pytest.mark.parametrize("average", [0.0, 0.9], ids=["last", "mean"])
def test_a_resumed_run_is_bit_equal(average: float, place: Path, tmp_path: Path) -> None:
    config = going_on(place, lora=LoraConfig(rank=2, dropout=0.2), train=("norm",))
    config = replace(
        config,
        run=replace(config.run, steps=6, average=average),
        every=replace(config.every, save=3, keep=9),
    )
    straight = trained(config, tmp_path / "straight")
    whole = tmp_path / "straight" / "step-000003"
    (tmp_path / "parts").mkdir()
    whole.rename(tmp_path / "parts" / whole.name)
    resumed = trained(config, tmp_path / "parts", resume=True)
    assert same(dict(straight.model.named_parameters()), dict(resumed.model.named_parameters()))
    assert straight.checkpoint is not None and resumed.checkpoint is not None
    states = [torch.load(run.checkpoint / "training.pt", weights_only=True) for run in (straight, resumed)]
    assert "norm.weight" in states[0]["weights"]
    for part in ("weights", "means", "optimiser"):
        assert same(states[0][part], states[1][part]), part
