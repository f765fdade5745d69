"""How much heads matter: the gradient of a mask against differences, ablation against edits, and who is chosen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import edit
from clearhead.lens.pruning.choice import choose, how_many
from clearhead.lens.pruning.examples import Examples, examples_of, loss_on, row_losses
from clearhead.lens.pruning.importance import HeadLayer, HeadMasks, head_layers, importance

TOKENS = torch.randint(0, 50, (5, 12), generator=torch.Generator().manual_seed(3))
BATCHES = [Examples({"tokens": part[:, :-1]}, part[:, 1:]) for part in (TOKENS[:2], TOKENS[2:])]


def row_loss(model, row_T, masks):
    """One row's mean loss with each head multiplied, in float64, by edits alone."""
    edits = {
        f"layers.{i}.mixer.z": (lambda z_BHTK, mask_H=mask_H: z_BHTK * mask_H[None, :, None, None])
        for i, mask_H in enumerate(masks)
    }
    logits_BTV = edit(model, row_T[None, :-1], edits)
    return float(F.cross_entropy(logits_BTV[0], row_T[1:]))


def test_gradients_are_what_differences_say(model):
    """(loss(1 + h) - loss(1 - h)) / 2h for each head and row; the mean of their sizes."""
    model.double()
    h, expected = 1e-5, torch.zeros(2, 4, dtype=torch.float64)
    for row_T in TOKENS:
        for layer in range(2):
            for head in range(4):
                sides = []
                for sign in (1, -1):
                    masks = torch.ones(2, 4, dtype=torch.float64)
                    masks[layer, head] += sign * h
                    sides.append(row_loss(model, row_T, masks))
                expected[layer, head] += abs(sides[0] - sides[1]) / (2 * h)
    expected /= len(TOKENS)
    found = torch.stack(importance(model, BATCHES, "gradient"))
    assert torch.allclose(found, expected, rtol=1e-3)
    assert all(p.grad is None for p in model.parameters())


def test_ablation_is_the_loss_without_the_head(model):
    found = importance(model, BATCHES, "ablation")
    whole = loss_on(model, BATCHES)
    masks = torch.ones(2, 4)
    masks[1, 2] = 0
    without = sum(row_loss(model, row_T, masks) for row_T in TOKENS) / len(TOKENS)
    assert float(found[1][2]) == pytest.approx(without - whole, abs=1e-5)
    assert whole == pytest.approx(sum(row_loss(model, row, torch.ones(2, 4)) for row in TOKENS) / 5, abs=1e-5)


def test_a_head_that_writes_nothing_matters_nothing(model):
    with torch.no_grad():
        model.layers[0].mixer.o_proj.weight[:, 8:16] = 0
    for by in ("gradient", "ablation"):
        scores = importance(model, BATCHES, by)
        assert float(scores[0][1]) == pytest.approx(0, abs=1e-7)
        assert abs(float(scores[0][0])) > 1e-3
    seeds = [importance(model, BATCHES, "random", seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(seeds[0][0], seeds[1][0])
    assert not torch.equal(seeds[0][0], seeds[2][0])


def test_masks_of_a_row_act_on_that_row(model):
    masks = torch.ones(2, 4)
    masks[1, 0] = 0
    batch = Examples({"tokens": TOKENS[:2, :-1]}, TOKENS[:2, 1:])
    with torch.no_grad():
        nats_B, n_B = row_losses(model, batch, HeadMasks({"layers.1.mixer": masks}))
    alone = torch.ones(2, 4)
    alone[1, 0] = 0
    assert float(nats_B[0] / n_B[0]) == pytest.approx(row_loss(model, TOKENS[0], torch.ones(2, 4)), abs=1e-5)
    assert float(nats_B[1] / n_B[1]) == pytest.approx(row_loss(model, TOKENS[1], alone), abs=1e-5)


class Marked:
    """A tokenizer of a character a token, with a mark before a text, one behind it, and one to hide behind."""

    vocabulary = SimpleNamespace(names={"mask_token": "?"})

    def encode(self, text: str, *, bos: bool = True) -> list[int]:
        ids = [10 + ord(char) % 40 for char in text]
        return [1, *ids, 2] if bos else ids

    def token_to_id(self, token: str) -> int:
        return 3


def test_texts_become_rows_that_are_told_token_by_token(model):
    model.tokenizer = Marked()
    (batch,) = examples_of(model, "abcdefgh" * 200, 1100)
    # Three rows would be more than there are tokens: two of 512 behind the mark, which is read and not told.
    assert batch.inputs["tokens"].shape == batch.targets.shape == (2, 512)
    assert batch.inputs["tokens"][:, 0].tolist() == [1, 1]
    assert torch.equal(batch.inputs["tokens"][:, 1:], batch.targets[:, :-1])
    ids = torch.tensor(model.tokenizer.encode("abcdefgh" * 128, bos=False))
    assert torch.equal(batch.targets.flatten(), ids)
    with pytest.raises(ClearheadError, match="too short"):
        examples_of(model, "a", 100)


def test_of_both_sides_some_tokens_are_hidden_and_told(make):
    model = make(kind="full")
    model.tokenizer = Marked()
    (batch,) = examples_of(model, "abcdefgh" * 200, 1600)
    seen, targets = batch.inputs["tokens"], batch.targets
    assert seen.shape == targets.shape == (3, 512)
    assert seen[:, 0].tolist() == [1] * 3
    assert seen[:, -1].tolist() == [2] * 3
    hidden = targets != -100
    assert 0.1 < float(hidden.float().mean()) < 0.2
    assert bool((seen[hidden] == 3).all())
    assert not bool((seen[~hidden] == 3).any())
    ids = torch.tensor(model.tokenizer.encode("abcdefgh" * 200, bos=False)[: 3 * 510]).view(3, 510)
    assert torch.equal(torch.where(hidden, targets, seen)[:, 1:-1], ids)
    assert torch.equal(examples_of(model, "abcdefgh" * 200, 1600)[0].targets, targets)
    assert not torch.equal(examples_of(model, "abcdefgh" * 200, 1600, seed=1)[0].targets, targets)
    assert loss_on(model, [batch]) > 1
    model.tokenizer.vocabulary = SimpleNamespace(names={})
    with pytest.raises(ClearheadError, match="no mask"):
        examples_of(model, "abcdefgh" * 200, 1600)


def test_targets_that_no_output_scores_are_refused(model):
    with pytest.raises(ClearheadError, match=r"\(5,\)"):
        loss_on(model, [Examples({"tokens": TOKENS}, torch.zeros(5, dtype=torch.long))])
    with pytest.raises(ClearheadError, match="-100"):
        loss_on(model, [Examples({"tokens": TOKENS}, torch.full_like(TOKENS, -100))])


# ---- who goes

PLAIN = HeadLayer(("layers.0.mixer",), 4, 4)
SHARED = HeadLayer(("layers.1.mixer", "layers.2.mixer"), 4, 2)


def test_the_least_important_go_and_one_stays():
    low, high = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([5.0, 6.0, 7.0, 8.0])
    assert choose([PLAIN], [low], 2) == {"layers.0.mixer": (0, 1)}
    other = HeadLayer(("layers.3.mixer",), 4, 4)
    assert choose([PLAIN, other], [low, high], 4) == {"layers.0.mixer": (0, 1, 2), "layers.3.mixer": (0,)}


def test_queries_on_one_key_value_head_go_together_or_evenly():
    both = dict.fromkeys(SHARED.addresses, (0, 1))
    assert choose([SHARED], [torch.tensor([1.0, 1.0, 5.0, 5.0])], 2) == both
    assert choose([SHARED], [torch.tensor([1.0, 5.0, 5.0, 1.0])], 2) == dict.fromkeys(SHARED.addresses, (0, 3))
    assert choose([SHARED], [torch.tensor([1.0, 5.0, 5.0, 1.0])], 1) == {}
    # One of each, and then the other key-value head with what is left on it.
    assert choose([SHARED], [torch.tensor([1.0, 5.0, 6.0, 2.0])], 3) == dict.fromkeys(SHARED.addresses, (0, 1, 3))


def test_shares_and_numbers_of_heads():
    layers = [PLAIN, HeadLayer(("layers.3.mixer",), 4, 4)]
    assert [how_many(x, layers) for x in (0.25, 0.3, 0.75, 1, 6)] == [2, 2, 6, 1, 6]
    for wrong in (0.0, 0, -1, 1.0, 1.5, 7, 0.99, 0.01, True, float("nan")):
        with pytest.raises(UsageError):
            how_many(wrong, layers)


def test_layers_that_run_with_the_same_weights_are_one(make):
    from dataclasses import replace

    from clearhead.model.transformer import Transformer

    config = make().config
    config = replace(config, decoder=replace(config.decoder, share=(0, 0)))
    (layer,) = head_layers(config)
    assert layer == HeadLayer(("layers.0.mixer", "layers.1.mixer"), 4, 2)
    model = Transformer(config).eval()
    (scores_H,) = importance(model, BATCHES, "ablation")
    cut = edit(model, TOKENS[:, :-1], {"layers.*.mixer.z": lambda z: z.index_fill(1, torch.tensor(3), 0.0)})
    without = float(F.cross_entropy(cut.flatten(0, 1), TOKENS[:, 1:].flatten()))
    assert float(scores_H[3]) == pytest.approx(without - loss_on(model, BATCHES), abs=1e-5)


def test_heads_that_go_together_count_by_what_each_matters():
    scores = [torch.tensor([0.7, 0.8, 0.9, 1.0]), torch.tensor([0.5, 0.5, 9.0, 9.0])]
    assert choose([PLAIN, SHARED], scores, 2) == dict.fromkeys(SHARED.addresses, (0, 1))
