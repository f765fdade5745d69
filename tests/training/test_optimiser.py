"""Which parameters decay, who moves which, and that a saved optimiser goes on bit for bit."""

from __future__ import annotations

import copy

import pytest
import torch

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    ExpertsConfig,
    FeedForwardConfig,
    HeadsConfig,
    LabelHeadConfig,
    LearnedPositions,
    MambaConfig,
    NormConfig,
    PatchesConfig,
    RelativeBiasConfig,
    RouterConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.model.transformer import Transformer
from clearhead.training.config import OptimConfig
from clearhead.training.optimiser import optimiser
from tests.oracles import error

NORM = NormConfig(kind="layer", bias=True)
FFN = FeedForwardConfig(d_ff=12, bias=True)
NAMES = ["adamw", "muon", "adafactor"]


def sublayer(op):
    return SublayerConfig(op=op, pre=NORM)


def a_model(tie=True):
    """A layer of attention and experts, and one of Mamba."""
    attention = AttentionConfig(n_heads=2, n_kv_heads=1, d_head=4, positions=RelativeBiasConfig(n_buckets=4))
    router = RouterConfig(bias=True, correction=True, score="sigmoid")
    experts = ExpertsConfig(n_experts=3, n_chosen=2, expert=FFN, router=router, shared=FFN)
    blocks = (
        BlockConfig(mixer=sublayer(attention), ffn=sublayer(experts)),
        BlockConfig(mixer=sublayer(MambaConfig(d_inner=8, d_state=3, dt_rank=2)), ffn=sublayer(FFN)),
    )
    embed = EmbedConfig(front=TokensConfig(vocab_size=20, n_types=2), positions=LearnedPositions(n=16))
    stack = StackConfig(embed=embed, blocks=blocks, norm=NORM)
    heads = HeadsConfig(tokens=TokenHeadConfig(tie=tie, bias=True))
    return Transformer(TransformerConfig(d_model=8, decoder=stack, heads=heads))


def names(optimiser, **having):
    """Of the parameters in groups that have these values."""
    return {
        name
        for group in optimiser.param_groups
        if all(group.get(key) == value for key, value in having.items())
        for name in group["param_names"]
    }


TABLES = {"embed.tokens.weight", "embed.types.weight", "embed.positions.weight", "relative.weight"}
MATRICES = {
    *(f"layers.0.mixer.{part}_proj.weight" for part in "qkvo"),
    *(f"layers.0.ffn.{part}_proj" for part in ("gate", "up", "down")),
    *(f"layers.0.ffn.shared.{part}_proj.weight" for part in ("gate", "up", "down")),
    "layers.0.ffn.router.weight",
    *(f"layers.1.mixer.{part}.weight" for part in ("in_proj", "conv", "x_proj", "dt_proj", "out_proj")),
    *(f"layers.1.ffn.{part}_proj.weight" for part in ("gate", "up", "down")),
}


@pytest.mark.parametrize("name", NAMES)
def test_matrices_decay_and_nothing_else_does(name):
    model = a_model()
    config = OptimConfig(name=name, weight_decay=0.2)
    made = optimiser(model, config)
    assert names(made, weight_decay=0.2) == MATRICES
    everything = {n for n, p in model.named_parameters() if p.requires_grad}
    assert names(made) == everything and "layers.0.ffn.router.correction" not in everything
    assert sum(len(group["params"]) for group in made.param_groups) == len(everything)
    assert "layers.1.mixer.A_log" in names(made, weight_decay=0.0)


def test_embeddings_decay_where_the_config_says_so():
    made = optimiser(a_model(), OptimConfig(decay_embeddings=True))
    assert names(made, weight_decay=0.1) == MATRICES | TABLES
    untied = optimiser(a_model(tie=False), OptimConfig())
    assert names(untied, weight_decay=0.1) == MATRICES | {"head.weight"}


def test_pictures_patches_are_matrices_and_learned_tokens_are_not():
    attention = AttentionConfig(n_heads=2, n_kv_heads=2, d_head=4)
    stack = StackConfig(
        embed=EmbedConfig(front=PatchesConfig(patch=2, image=(4, 4)), positions=LearnedPositions(n=5)),
        blocks=(BlockConfig(mixer=sublayer(attention)),),
    )
    heads = HeadsConfig(labels=(("labels", LabelHeadConfig(n_labels=3)),))
    made = optimiser(Transformer(TransformerConfig(d_model=8, encoder=stack, heads=heads)), OptimConfig())
    decays = names(made, weight_decay=0.1)
    assert {"embed.patches.weight", "labels.labels.weight"} < decays
    assert {"embed.prefix", "embed.positions.weight", "embed.patches.bias"} <= names(made, weight_decay=0.0)


def test_muon_moves_hidden_matrices():
    made = optimiser(a_model(tie=False), OptimConfig(name="muon", momentum=0.9))
    experts = {f"layers.0.ffn.{part}_proj" for part in ("gate", "up", "down")}
    others = experts | {"layers.0.ffn.router.weight", "layers.1.mixer.conv.weight"}
    assert names(made, momentum=0.9) == MATRICES - others
    assert names(made, fused=True) == names(made) - names(made, momentum=0.9)


def give_gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


def test_adamw_is_its_formula():
    model = a_model().double()
    made = optimiser(model, OptimConfig(lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.3))
    wanted = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    first, second = ({n: torch.zeros_like(p) for n, p in wanted.items()} for _ in range(2))
    for step in (1, 2, 3):
        give_gradients(model, seed=step)
        for n, p in model.named_parameters():
            if n not in wanted:
                continue
            first[n] = 0.8 * first[n] + 0.2 * p.grad
            second[n] = 0.9 * second[n] + 0.1 * p.grad**2
            wanted[n] *= 1 - 0.01 * (0.3 if n in MATRICES else 0.0)
            size = (second[n] / (1 - 0.9**step)).sqrt() + 1e-6
            wanted[n] -= 0.01 * first[n] / (1 - 0.8**step) / size
        made.step()
    assert max(error(p, wanted[n]) for n, p in model.named_parameters() if n in wanted) <= 1e-12


def test_a_step_of_muon_has_the_size_of_one_of_adamw():
    """Its update is near to orthogonal, with numbers of 0.2 on average, whatever the shape."""
    model = a_model()
    made = optimiser(model, OptimConfig(name="muon", lr=1.0, weight_decay=0.0))
    before = copy.deepcopy(model)
    give_gradients(model, seed=0)
    made.step()
    name = "layers.0.ffn.shared.up_proj.weight"
    moved = model.get_parameter(name).detach() - before.get_parameter(name).detach()
    scale = 0.2 * max(moved.shape) ** 0.5
    singular = torch.linalg.svdvals(moved) / scale
    assert float(singular.min()) > 0.5 and float(singular.max()) < 1.5
    assert float(moved.square().mean().sqrt()) == pytest.approx(0.2, rel=0.3)


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_optimiser_goes_on_bit_for_bit(name, tmp_path):
    model = a_model()
    made = optimiser(model, OptimConfig(name=name, lr=0.02))

    def go_on(model, made, steps):
        for step in steps:
            for group in made.param_groups:
                group["lr"] = 0.02 / (1 + step)
            give_gradients(model, seed=step)
            made.step()
            made.zero_grad()

    go_on(model, made, range(3))
    other = copy.deepcopy(model)
    torch.save(made.state_dict(), tmp_path / "optimiser.pt")
    go_on(model, made, range(3, 6))

    resumed = optimiser(other, OptimConfig(name=name, lr=0.02))
    resumed.load_state_dict(torch.load(tmp_path / "optimiser.pt", weights_only=True))
    go_on(other, resumed, range(3, 6))
    for (n, a), b in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), n
    for a, b in zip(made.state.values(), resumed.state.values(), strict=True):
        assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize(("name", "lr"), [("adamw", 0.02), ("muon", 0.02), ("adafactor", 0.3)])
def test_every_optimiser_learns(name, lr):
    model = a_model()
    made = optimiser(model, OptimConfig(name=name, lr=lr))
    tokens = torch.randint(20, (4, 9))

    def loss():
        return torch.nn.functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    first = float(loss())
    for _ in range(30):
        made.zero_grad()
        loss().backward()
        made.step()
    assert float(loss()) < 0.8 * first


def test_frozen_parameters_stay():
    model = a_model()
    model.embed.requires_grad_(False)
    assert not any(name.startswith("embed.") for name in names(optimiser(model, OptimConfig())))
    only_embedding = a_model()
    only_embedding.layers.requires_grad_(False)
    with pytest.raises(ClearheadError, match="adamw"):
        optimiser(only_embedding, OptimConfig(name="muon"))
    with pytest.raises(ClearheadError, match="nothing to train"):
        optimiser(model.requires_grad_(False), OptimConfig())


def test_muon_needs_a_torch_that_has_it(monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(ClearheadError, match=r"2\.9"):
        optimiser(a_model(), OptimConfig(name="muon"))
