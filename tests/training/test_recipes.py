"""Every recipe on texts, at sizes of nothing: it trains, is saved, and is the same model in the `transformers` package,
where that has its family.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import clearhead
from clearhead.cli import main
from clearhead.families import FAMILIES
from clearhead.training.config import MaskingConfig, ModelConfig, TrainConfig
from clearhead.training.objectives import from_config
from clearhead.training.prepare import prepare
from clearhead.training.recipes import RECIPES, recipe
from clearhead.training.run import config_of, train
from clearhead.training.settings import plain
from tests.oracles import error

COMMON = """
    data.held_out=0.2 batch.repeated=0 batch.rows=4 batch.length=32 batch.pack=plain run.steps=3 every.log=1
    every.evaluate=0 every.save=0 data.vocab_size=300
""".split()
DECODER = "model.d_model=32 model.n_layers=2 model.n_heads=2 model.n_kv_heads=1 model.d_ff=48".split()
BLOCKS = "model.config.decoder.blocks"
HEADS = [f"mixer.op.{name}" for name in ("n_kv_heads=2", "n_heads=2", "d_head=16")]
TINY = {
    "gpt_stdlib": (*DECODER, "data.corpus.pattern=*"),
    "gpt_english": DECODER,
    "bert_english": (
        "model.config.d_model=32",
        *(f"model.config.encoder.blocks.*.{one}" for one in (*HEADS, "ffn.op.d_ff=48")),
        "model.config.heads.tokens.transform.width=32",
    ),
    "attention_only_2l": ("model.config.d_model=32", *(f"{BLOCKS}.*.{one}" for one in HEADS)),
    "mixtral_small": (
        "model.config.d_model=32",
        *(f"{BLOCKS}.*.{one}" for one in (*HEADS, "ffn.op.expert.d_ff=24", "ffn.op.n_experts=4")),
    ),
    "mamba_small": (
        "model.config.d_model=32",
        *(f"{BLOCKS}.*.mixer.op.{one}" for one in ("d_inner=64", "d_state=4", "dt_rank=2")),
    ),
    "hybrid_small": (
        "model.config.d_model=32",
        *(f"{BLOCKS}.{i}.mixer.op.{one}" for i in (0, 1, 3) for one in ("n_heads=4", "d_head=16", "d_state=8")),
        *(f"{BLOCKS}.2.{one}" for one in HEADS),
        f"{BLOCKS}.*.ffn.op.d_ff=48",
    ),
}
"""By the name of the recipe: its settings here."""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for i in range(10):
        words = " ".join(f"the whale of {(i * 7 + j * j) % 23} seas, and a man of {j % 5} words;" for j in range(40))
        (folder / f"{i}.txt").write_text(words)
    return folder


def tiny(name: str, texts: Path) -> TrainConfig:
    config = config_of(name, (*COMMON, *TINY[name], f"data.corpus.path={texts}"))
    assert isinstance(config, TrainConfig)
    return config


@pytest.mark.parametrize("name", TINY)
def test_a_recipe_trains_and_its_checkpoint_has_the_same_loss_in_transformers(
    name: str, texts: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers", reason="a test dependency")
    config = tiny(name, texts)
    done = train(config, out=tmp_path / "run", quiet=True)
    assert done.steps == 3 and done.report is not None
    batches = prepare(config, tmp_path / "run", quiet=True).batches
    batch, objective = next(batches.held_out()), from_config(config.objective)
    masked = config.objective.name == "masked_tokens"
    assert batches.describe()["masking"] == (plain(config.objective.masking) if masked else None)
    loaded = clearhead.load(done.checkpoint)
    with torch.no_grad():
        (ours, n), (saved, _) = (objective.loss(model.eval(), batch) for model in (done.model, loaded))
    assert float(saved) == float(ours)
    family = config.model.family  # type: ignore[union-attr]
    if family not in transformers.CONFIG_MAPPING:
        assert FAMILIES[family].model_type == "attention_only"  # tests/families/test_attention_only.py has its oracle
        return
    auto = transformers.AutoModelForCausalLM if loaded.config.encoder is None else transformers.AutoModelForMaskedLM
    theirs = auto.from_pretrained(done.checkpoint, dtype=torch.float32).eval()
    assert type(theirs).__name__ == FAMILIES[family].architectures[0] or loaded.config.encoder is not None
    present = batch.inputs.get("present", torch.ones_like(batch.targets, dtype=torch.bool))
    with torch.no_grad():
        logits_BTV = theirs(batch.inputs["tokens_BT"], attention_mask=present.long()).logits
        ours_BTV = loaded(**batch.inputs)
    loss = F.cross_entropy(logits_BTV.flatten(0, 1), batch.targets.flatten(), ignore_index=-100)
    assert float(ours) / float(n) == pytest.approx(float(loss), rel=1e-5)
    assert error(ours_BTV[present], logits_BTV[present]) < 1e-5


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_function_of_nothing(name: str) -> None:
    assert recipe(name) == recipe(name)


def test_the_help_lists_every_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(f"{name} ({about})" in said for name, about in RECIPES.items())


def test_masked_words_are_whole_by_a_setting() -> None:
    config = config_of("bert_english", ("objective.masking.whole_words=false", "objective.masking.share=0.3"))
    assert isinstance(config, TrainConfig)
    assert config.objective.masking == MaskingConfig(share=0.3)
    whole = recipe("bert_english")
    assert isinstance(whole, TrainConfig) and whole.objective.masking.whole_words
    assert isinstance(whole.model, ModelConfig) and whole.model.family == "modernbert"
