"""Objectives: sums that don't depend on how a batch is cut, each against its formula, and what is refused."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    ExpertsConfig,
    FeedForwardConfig,
    HeadsConfig,
    LabelHeadConfig,
    MaskConfig,
    NormConfig,
    RotaryConfig,
    RouterConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.model.balance import balance_term, router_sites
from clearhead.model.transformer import Transformer
from clearhead.ops.losses import IGNORE, cross_entropy_sum
from clearhead.taps import Recorder
from clearhead.training.config import ObjectiveConfig
from clearhead.training.data.batches import Batch, split
from clearhead.training.objectives import (
    Distil,
    Labels,
    MaskedTokens,
    NextToken,
    Regress,
    SourceToTarget,
    from_config,
)
from tests.oracles import error
from tests.tiny import lively

VOCAB, ROWS, T, S = 30, 8, 10, 7
NORM = NormConfig()
LENGTHS = torch.tensor([10, 3, 7, 1, 9, 10, 2, 5])
EVERY_HEAD_OPTION = TokenHeadConfig(bias=True, scale=0.7, softcap=2.0, transform=TransformConfig(width=16, norm=NORM))
BALANCED = ExpertsConfig(
    n_experts=4, n_chosen=2, expert=FeedForwardConfig(d_ff=12), router=RouterConfig(balance=0.1, renormalise=True)
)


def stack(kind="causal", ffn=None, cross=False):
    def attention(kind, positions):
        op = AttentionConfig(n_heads=2, n_kv_heads=1, d_head=8, mask=MaskConfig(kind=kind), positions=positions)
        return SublayerConfig(op=op, pre=NORM)

    block = BlockConfig(
        mixer=attention(kind, RotaryConfig()),
        cross=attention("full", None) if cross else None,
        ffn=SublayerConfig(op=ffn or FeedForwardConfig(d_ff=24), pre=NORM),
    )
    return StackConfig(embed=EmbedConfig(front=TokensConfig(vocab_size=VOCAB)), blocks=(block, block), norm=NORM)


def a_model(seed=0, heads=None, **stacks):
    config = TransformerConfig(d_model=16, heads=heads or HeadsConfig(tokens=TokenHeadConfig()), **stacks)
    return lively(Transformer(config), seed)


def decoder(head=None, ffn=None, seed=0):
    return a_model(seed, HeadsConfig(tokens=head or TokenHeadConfig()), decoder=stack(ffn=ffn))


def translator(ffn=None):
    return a_model(encoder=stack("full", ffn), decoder=stack(ffn=ffn, cross=True))


def classifier(n_labels=5, at="mean", ffn=None, seed=0, tokens=None):
    heads = HeadsConfig(labels=(("kind", LabelHeadConfig(n_labels=n_labels, at=at)),), tokens=tokens)
    return a_model(seed, heads, encoder=stack("full", ffn))


def draw(*shape, n=VOCAB):
    return torch.randint(n, shape, generator=torch.Generator().manual_seed(sum(shape)))


def present():
    return torch.arange(T) < LENGTHS[:, None]


def next_tokens():
    """Ragged rows; the last token of each has no target."""
    tokens, there = draw(ROWS, T + 1), present()
    targets = tokens[:, 1:].where(torch.arange(T) < LENGTHS[:, None] - 1, IGNORE)
    return Batch(inputs={"tokens_BT": tokens[:, :-1], "present": there}, targets=targets)


def masked_tokens():
    batch = next_tokens()
    is_masked = (draw(ROWS, T, n=7) == 0) & batch.inputs["present"]
    return Batch(inputs=batch.inputs, targets=draw(ROWS, T).where(is_masked, IGNORE))


def source_and_target():
    batch = next_tokens()
    source = {"source": draw(ROWS, S), "source_present": torch.arange(S) < (LENGTHS[:, None] % S) + 1}
    return Batch(inputs=batch.inputs | source, targets=batch.targets)


def labels():
    targets = draw(ROWS, n=5)
    targets[3] = IGNORE
    return Batch(inputs=next_tokens().inputs, targets=targets)


def numbers(*shape):
    targets = torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets[2] = float("nan")
    return Batch(inputs=next_tokens().inputs, targets=targets)


# ---- sums don't depend on how a batch is cut (H10)


def test_the_mean_is_over_all_targets_of_a_step():
    """Three targets of loss 4 in one micro-batch, one of loss 0 in another: 3, and not the mean of means, 2."""
    four = torch.tensor([[0.0, math.log(math.exp(4.0) - 1)]], dtype=torch.float64).repeat(3, 1)
    parts = [(four, torch.zeros(3).long()), (torch.tensor([[1000.0, 0.0]]).double(), torch.zeros(1).long())]
    sums = [cross_entropy_sum(*part) for part in parts]
    assert float(sum(total for total, _ in sums) / sum(n for _, n in sums)) == pytest.approx(3.0, abs=1e-12)


CASES = {
    "next token": (NextToken(), decoder, next_tokens),
    "every option of the head": (NextToken(label_smoothing=0.2), lambda: decoder(EVERY_HEAD_OPTION), next_tokens),
    "untied": (NextToken(), lambda: decoder(TokenHeadConfig(tie=False, scale=0.5)), next_tokens),
    "experts": (NextToken(), lambda: decoder(ffn=BALANCED), next_tokens),
    "masked tokens": (MaskedTokens(), lambda: a_model(encoder=stack("full")), masked_tokens),
    "source to target": (SourceToTarget(), lambda: translator(BALANCED), source_and_target),
    "labels": (Labels(label_smoothing=0.1), lambda: classifier(ffn=BALANCED), labels),
    "labels of tokens": (Labels(), lambda: classifier(n_labels=VOCAB, at="every", ffn=BALANCED), next_tokens),
    "numbers": (Regress(), lambda: classifier(n_labels=2, ffn=BALANCED), lambda: numbers(2)),
    "distilled": (Distil(teacher=decoder(seed=7), of=NextToken(label_smoothing=0.1)), decoder, next_tokens),
    "distilled labels": (Distil(teacher=classifier(seed=7), of=Labels(), weight=0.9), classifier, labels),
}


def one_step(objective, model, batch, micro_rows):
    """The mean loss of a batch in parts, its gradients, and their norm."""
    model.zero_grad()
    parts = [objective.loss(model, part) for part in split(batch, micro_rows)]
    n = sum(int(n) for _, n in parts)
    for total, _ in parts:
        assert total.requires_grad
        total.backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= n
    loss = sum(total.detach() for total, _ in parts) / n
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    return [loss, norm, torch.tensor(n), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_loss_and_gradients_are_the_same_however_a_batch_is_cut(case, dtype, limit):
    objective, make, batch = case[0], case[1](), case[2]()
    model = make.to(dtype).train()
    if isinstance(objective, Distil):
        objective = replace(objective, teacher=copy.deepcopy(objective.teacher).to(dtype))
    whole = one_step(objective, model, batch, ROWS)
    assert float(whole[0]) > 0 and float(whole[1]) > 0
    worst = 0.0
    for micro_rows in (2, 1, 3):
        cut = one_step(objective, model, batch, micro_rows)
        assert len(cut) == len(whole)
        worst = max(worst, *(error(a, b) for a, b in zip(cut, whole, strict=True)))
    assert worst <= limit


# ---- each against its formula


@pytest.mark.parametrize("head", [TokenHeadConfig(), TokenHeadConfig(tie=False, bias=True), EVERY_HEAD_OPTION])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_tokens_cost_their_cross_entropy(head, smoothing):
    model, batch = decoder(head).double(), next_tokens()
    total, n = NextToken(label_smoothing=smoothing).loss(model, batch)
    logits = model(**batch.inputs)
    wanted = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="sum", label_smoothing=smoothing)
    assert error(total, wanted) <= 1e-12 and int(n) == int((LENGTHS - 1).sum())
    found, right = (torch.autograd.grad(loss, list(model.parameters())) for loss in (total, wanted))
    assert max(error(a, b) for a, b in zip(found, right, strict=True)) <= 1e-12


def test_translations_are_smoothed_and_look_at_the_source():
    model, batch = translator().double(), source_and_target()
    total, n = SourceToTarget().loss(model, batch)
    logits = model(**batch.inputs)
    wanted = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="sum", label_smoothing=0.1)
    assert error(total, wanted) <= 1e-12 and int(n) == int((LENGTHS - 1).sum())


@pytest.mark.parametrize("tokens", [None, TokenHeadConfig()], ids=["alone", "beside a token head"])
def test_labels_cost_their_cross_entropy(tokens):
    model, batch = classifier(tokens=tokens).double(), labels()
    total, n = Labels().loss(model, batch)
    outputs = model(**batch.inputs)
    scores = outputs if tokens is None else outputs.kind
    assert error(total, F.cross_entropy(scores, batch.targets, reduction="sum")) <= 1e-12 and int(n) == ROWS - 1


@pytest.mark.parametrize("n_numbers", [1, 3])
def test_numbers_cost_their_squared_error(n_numbers):
    model = classifier(n_labels=n_numbers).double()
    batch = numbers() if n_numbers == 1 else numbers(3)
    total, n = Regress().loss(model, batch)
    off = model(**batch.inputs).reshape(batch.targets.shape) - batch.targets
    assert error(total, off[~off.isnan()].square().sum()) <= 1e-12 and int(n) == n_numbers * (ROWS - 1)
    total.backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


def test_a_label_head_is_chosen_by_name():
    head = LabelHeadConfig(n_labels=5)
    heads = HeadsConfig(labels=(("a", head), ("b", head)), average_labels=True)
    model, batch = a_model(heads=heads, encoder=stack("full")).double(), labels()
    outputs = model(**batch.inputs)
    for name, scores in (("a", outputs.a), ("b", outputs.b), (None, outputs.logits)):
        total, _ = Labels(head=name).loss(model, batch)
        assert error(total, F.cross_entropy(scores, batch.targets, reduction="sum")) <= 1e-12


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_distillation_is_a_mixture(weight):
    teacher, model, batch = decoder(seed=7).double(), decoder().double(), next_tokens()
    total, n = Distil(teacher=teacher, temperature=3.0, weight=weight).loss(model, batch)
    hard, n_hard = NextToken().loss(model, batch)
    real = batch.targets != IGNORE
    log_p, log_q = (m(**batch.inputs)[real].div(3).log_softmax(-1) for m in (teacher, model))
    wanted = (1 - weight) * hard + weight * 9 * (log_p.exp() * (log_p - log_q)).sum()
    assert error(total, wanted) <= 1e-12 and int(n) == int(n_hard)
    found, right = (torch.autograd.grad(loss, list(model.parameters())) for loss in (total, wanted))
    assert max(error(a, b) for a, b in zip(found, right, strict=True)) <= 1e-12
    total, _ = Distil(teacher=teacher, weight=weight).loss(model, batch)
    total.backward()
    assert all(p.grad is None for p in teacher.parameters())


def test_a_student_that_is_its_teacher_has_nothing_to_learn():
    model = decoder().double()
    total, _ = Distil(teacher=copy.deepcopy(model), weight=1.0).loss(model, next_tokens())
    total.backward()
    assert abs(float(total.detach())) <= 1e-12 and max(float(p.grad.abs().max()) for p in model.parameters()) <= 1e-12


def test_a_batch_without_targets_costs_nothing():
    batch = next_tokens()
    empty = Batch(inputs=batch.inputs, targets=torch.full_like(batch.targets, IGNORE))
    for objective in (NextToken(), Distil(teacher=decoder(seed=7))):
        model = decoder(ffn=BALANCED).train()
        total, n = objective.loss(model, empty)
        total.backward()
        assert (float(total), int(n)) == (0.0, 0)
        assert not any(p.grad is not None and p.grad.any() for p in model.parameters())


# ---- the balance of experts


def test_each_rows_balance_counts_as_often_as_it_has_targets():
    model, batch = decoder(ffn=BALANCED).double(), next_tokens()
    plain, n = NextToken().loss(model, batch)
    total, _ = NextToken().loss(model.train(), batch)
    balances = []
    for row in range(ROWS):
        tokens = batch.inputs["tokens_BT"][row : row + 1, : int(LENGTHS[row])]
        recorder = Recorder(router_sites(model))
        model(tokens, taps=recorder)
        balances.append(balance_term(model, recorder.values))
    wanted = (torch.stack(balances) * (LENGTHS - 1)).sum()
    assert float(wanted) > 0.2 * int(n) - 1e-9  # weight 0.1, and two experts a token are 2 at best
    assert error(total - plain, wanted) <= 1e-12


def test_the_balance_trains_the_routers_and_is_no_part_of_what_is_measured():
    batch = next_tokens()
    model = decoder(ffn=BALANCED).double()
    without = decoder(ffn=replace(BALANCED, router=replace(BALANCED.router, balance=0.0))).double()
    assert torch.equal(NextToken().loss(model, batch)[0], NextToken().loss(without.train(), batch)[0])
    gradients = []
    for one in (model.train(), without):
        NextToken().loss(one, batch)[0].backward()
        gradients.append(one.layers[0].ffn.router.weight.grad)
    assert error(*gradients) > 1e-3


def test_an_encoders_experts_are_balanced_over_its_own_tokens():
    model, batch = translator(BALANCED).double(), source_and_target()
    plain, _ = SourceToTarget().loss(model, batch)
    total, _ = SourceToTarget().loss(model.train(), batch)
    wanted = 0.0
    for row in range(ROWS):
        recorder = Recorder(router_sites(model))
        part = {name: value[row : row + 1] for name, value in batch.inputs.items()}
        there, source_there = part.pop("present"), part.pop("source_present")
        model(part["tokens_BT"][there][None], source=part["source"][source_there][None], taps=recorder)
        for side in (True, False):
            seen = {k: v for k, v in recorder.values.items() if k.startswith("encoder.") == side}
            half = model.encoder if side else model.layers
            wanted += (int(LENGTHS[row]) - 1) * float(balance_term(half, seen))
    assert float(total - plain) == pytest.approx(wanted, rel=1e-12)


# ---- looking, and what is refused


@pytest.mark.parametrize("ffn", [None, BALANCED], ids=["plain", "experts"])
def test_taps_look_into_the_pass(ffn):
    recorder = Recorder(["layers.1.resid_post"])
    NextToken().loss(decoder(ffn=ffn).train(), next_tokens(), taps=recorder)
    assert recorder.values["layers.1.resid_post"].shape == (ROWS, T, 16)


def test_the_stream_that_no_head_has_read():
    model, batch = decoder(), next_tokens()
    x = model(**batch.inputs, read=False)
    assert torch.equal(x @ model.unembedding.T, model(**batch.inputs)) and x.shape == (ROWS, T, 16)
    assert torch.equal(model(**batch.inputs, read=False, last=2), x[:, -2:])


def test_what_cannot_be_learnt_is_refused():
    batch = next_tokens()
    both_sides = a_model(encoder=stack("full"))
    two_heads = HeadsConfig(labels=tuple((name, LabelHeadConfig(n_labels=5)) for name in ("a", "b")))
    wrong = batch.targets.clone()
    wrong[1, 0] = VOCAB
    refused = [
        ("would predict", NextToken(), both_sides, batch),
        ("no encoder", SourceToTarget(), decoder(), batch),
        ("no token head", NextToken(), a_model(heads=HeadsConfig(), decoder=stack()), batch),
        (f"a target is {VOCAB}, and there are {VOCAB} tokens", NextToken(), decoder(), replace(batch, targets=wrong)),
        ("shape", NextToken(), decoder(), replace(batch, targets=batch.targets[:, :-1])),
        ("int64", Labels(), classifier(), numbers()),
        ("make them floats", Regress(), classifier(n_labels=1), labels()),
        ("shape", Regress(), classifier(n_labels=3), numbers(2)),
        ("one of a, b", Labels(), a_model(heads=two_heads, encoder=stack("full")), labels()),
        ("no head 'c'; name one of a, b", Labels(head="c"), a_model(heads=two_heads, encoder=stack("full")), labels()),
        ("new_head=", Labels(), decoder(), labels()),
        ("a target is", Labels(), classifier(n_labels=2), labels()),
        ("the teacher scores 5 and the student 4", Distil(teacher=classifier(), of=Labels()), classifier(4), labels()),
    ]
    for words, objective, model, given in refused:
        if "student" in words:
            given = replace(given, targets=given.targets.clamp(max=3))
        with pytest.raises(ClearheadError, match=words):
            objective.loss(model, given)
    for options in ({"weight": 1.5}, {"temperature": 0.0}):
        with pytest.raises(ClearheadError, match="temperature"):
            Distil(teacher=decoder(), **options)


def test_a_config_names_an_objective():
    assert from_config(ObjectiveConfig()) == NextToken()
    assert from_config(ObjectiveConfig(name="masked_tokens")) == MaskedTokens()
    smoothed = ObjectiveConfig(name="source_to_target", label_smoothing=0.2)
    assert from_config(smoothed) == SourceToTarget(label_smoothing=0.2)
    assert from_config(ObjectiveConfig(name="labels", head="kind")) == Labels(head="kind")
    assert from_config(ObjectiveConfig(name="regress")) == Regress()
