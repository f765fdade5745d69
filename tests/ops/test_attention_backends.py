"""Every backend x predicate x padding x dtype x grouping, forward and backward, against the float64 reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_mask

from clearhead.errors import ClearheadError
from clearhead.ops import attention_documents as by_documents
from clearhead.ops import attention_tiled as tiled
from clearhead.ops.attention import attention, traced
from clearhead.ops.attention_flex import mask_mod
from clearhead.ops.attention_sdpa import attention_sdpa
from clearhead.ops.backends import BACKENDS, LARGE, NAMES, SOFTCAP, Request, attend, choose, request
from clearhead.ops.biases import Alibi, RelativeBias, alibi_slopes
from clearhead.ops.masks import Around, Causal, Everything, Mask, SameDocument, Window, bind
from tests.ops.attention_cases import PADDINGS, PREDICATES, Problem, bound, problem, rounded, solve
from tests.oracles import TOLERANCE, error

DTYPES = [torch.float64, torch.float32, torch.bfloat16]
SHAPES = [(9, 9), (1, 9), (3, 9)]
KINDS = ["plain", "sinks", "softcap", "alibi", "relative bias", "all"]


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 4 x 4, one row of the batch at a time, so that tiny problems have hidden, mixed and visible ones."""
    monkeypatch.setattr(tiled, "TILE", 4)
    monkeypatch.setattr(tiled, "CELLS", 1)


def agree(function: Any, given: Problem, dtype: torch.dtype, backward: bool = True, train_bias: bool = True) -> None:
    found = solve(function, given, dtype, backward, train_bias)
    truth = solve(attention, rounded(given, dtype), torch.float64, backward, train_bias)
    assert len(found) == len(truth)
    for ours, theirs in zip(found, truth, strict=True):
        assert ours.dtype == dtype
        assert error(ours, theirs) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("predicate", PREDICATES)
@pytest.mark.parametrize("name", ["reference", "tiled", "sdpa"])
def test_backends_agree(name: str, predicate: str, padding: str, dtype: torch.dtype) -> None:
    for shape, n_groups in (((9, 9), 4), ((9, 9), 2), ((1, 9), 1), ((3, 9), 2)):
        agree(BACKENDS[name].function, problem(bound(predicate, *shape, padding), n_groups=n_groups), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["reference", "tiled", "sdpa"])
def test_backends_agree_on_sinks_caps_and_biases(name: str, kind: str, dtype: torch.dtype) -> None:
    if name == "sdpa" and kind in ("softcap", "all"):
        assert SOFTCAP not in BACKENDS[name].on("cpu").serves  # and so refused: see below
        return
    for predicate, padding in (("causal", "none"), ("all together", "padded")):
        for shape in SHAPES:
            given = problem(bound(predicate, *shape, padding), with_=kind)
            agree(BACKENDS[name].function, given, dtype, train_bias=name != "sdpa")


@pytest.mark.parametrize("d_value", [4, 12])
@pytest.mark.parametrize("kind", ["plain", "sinks"])
@pytest.mark.parametrize("name", ["reference", "tiled", "sdpa"])
def test_values_of_another_width(name: str, kind: str, d_value: int) -> None:
    for predicate in ("causal", "window"):
        for shape in SHAPES:
            agree(
                BACKENDS[name].function, problem(bound(predicate, *shape), d_value=d_value, with_=kind), torch.float32
            )


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("predicate", PREDICATES)
def test_flex_is_asked_the_same_mask(predicate: str, padding: str) -> None:
    for shape in SHAPES:
        mask = bound(predicate, *shape, padding)
        cells = create_mask(mask_mod(mask), 3, None, *shape, device="cpu")
        assert torch.equal(cells, mask.dense.expand(3, -1, -1, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_wide_tiles_and_many_rows_agree(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "TILE", 16)
    monkeypatch.setattr(tiled, "CELLS", 2**20)
    for shape in ((40, 40), (5, 70), (33, 65)):
        for predicate in ("causal", "documents", "all together"):
            agree(BACKENDS["tiled"].function, problem(bound(predicate, *shape, "padded"), with_="all"), dtype)


def test_fused_kernel_agrees_with_more_queries_than_are_folded() -> None:
    for kind in ("plain", "sinks", "alibi"):
        for predicate in PREDICATES:
            agree(
                attention_sdpa, problem(bound(predicate, 20, 24, "padded"), with_=kind), torch.float32, train_bias=False
            )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("own", [Causal(), Everything()])
@pytest.mark.parametrize("n_groups", [4, 2])
def test_documents_one_by_one_agree(n_groups: int, own: Mask, dtype: torch.dtype, monkeypatch: Any) -> None:
    monkeypatch.setattr(by_documents, "CALL", 1)
    monkeypatch.setattr(by_documents, "CALL_WITHOUT_GRADIENT", 1)
    # Rows cut alike, next to each other and not, with neighbours of one length, and one that is not cut.
    document_BS = torch.tensor([[0, 0, 1, 1, 1, 1, 2, 2, 2], [0, 0, 0, 1, 1, 1, 2, 2, 2], [0] * 9])
    for rows in ([0, 1, 1], [0, 0, 2], [2, 1, 0], [2, 2, 2]):
        mask = bind(own & SameDocument(document_BS[rows]), 9, 9)
        agree(attention_sdpa, problem(mask, n_groups=n_groups, d_value=5), dtype)
        assert mask.documents == tuple(((2, 4, 3), (3, 3, 3), (9,))[row] for row in rows)
    given = problem(mask, n_groups=n_groups)
    attention_sdpa(given.q, given.k, given.v, mask := bind(own & SameDocument(document_BS), 9, 9), scale=0.3)
    assert "dense" not in mask.__dict__


def test_documents_that_can_not_be_told_apart_have_a_mask() -> None:
    documents = SameDocument(torch.tensor([[0, 1, 1, 0]]))  # one comes back
    assert bind(Causal() & documents, 4, 4).documents is None
    whole = SameDocument(torch.tensor([[0, 0, 1, 1]]))
    assert bind(Causal() & whole, 2, 4).documents is None
    assert bind(Causal() & Window(1) & whole, 4, 4).documents is None
    assert bind(Around(0) & whole, 4, 4).documents is None
    for own, is_causal in (
        (Causal(), True),
        (Causal() & Window(2), True),  # hides nothing of so short a document
        (Everything(), False),
        (Around(1), False),
    ):
        mask = bind(own & whole, 4, 4)
        assert (mask.documents, mask.is_causal) == (((2, 2),), is_causal)


def test_many_calls_have_a_mask_instead() -> None:
    """A call for each of many lengths would cost more than what it skips; neighbours of one length are one call."""
    for length, step, wants_gradient, has_mask in (
        (32, 0, True, False),
        (4, 0, True, False),
        (32, 1, True, True),
        (32, 1, False, False),
        (3, 1, False, True),
    ):
        lengths = [length + step * (i % 2) for i in range(128 // length)]
        document_S = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
        q = torch.randn(1, 1, len(document_S), 4, requires_grad=wants_gradient)
        mask = bind(Causal() & SameDocument(document_S[None]), len(document_S), len(document_S))
        attention_sdpa(q, q, q, mask, scale=1.0)
        assert ("dense" in mask.__dict__) == has_mask


@pytest.mark.parametrize("n", [2, 20, 128, 129])
def test_short_texts_by_products_agree(n: int) -> None:
    for dtype in DTYPES:
        agree(attention_sdpa, problem(bind(Everything(), n, n)), dtype)
    many = torch.arange(4).repeat_interleave(n)[None]
    agree(attention_sdpa, problem(bind(Everything() & SameDocument(many), 4 * n, 4 * n)), torch.float32)


def test_tiles_skip_what_is_hidden_and_make_no_mask_of_what_is_visible() -> None:
    mask = bind(Causal() & Window(5), 12, 12)
    kinds = [[mask.tile(slice(t, t + 4), slice(s, s + 4)) for s in (0, 4, 8)] for t in (0, 4, 8)]
    assert [[x if isinstance(x, bool) else "mixed" for x in row] for row in kinds] == [
        ["mixed", False, False],
        ["mixed", "mixed", False],
        [False, "mixed", "mixed"],
    ]
    assert bind(Causal(), 4, 8).tile(slice(0, 4), slice(0, 4)) is True
    assert "dense" not in mask.__dict__


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("predicate", PREDICATES)
def test_tiles_are_parts_of_the_dense_mask(predicate: str, padding: str) -> None:
    for n_queries in (9, 10, 11, 12):  # so that the borders of tiles meet the mask's in every way
        mask = bound(predicate, n_queries, 12, padding)
        dense = mask.dense.expand(3, -1, -1, -1)
        for row in range(3):
            for t in range(0, n_queries, 4):
                for s in range(0, 12, 4):
                    part = dense[row : row + 1, :, t : t + 4, s : s + 4]
                    cells = mask.tile(slice(t, min(t + 4, n_queries)), slice(s, s + 4), slice(row, row + 1))
                    assert torch.equal(torch.as_tensor(cells).expand_as(part), part)


def test_tiled_keeps_nothing_that_grows_with_the_square() -> None:
    given = problem(bound("causal", 64, 64))
    sizes = []

    def keep(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        solve(BACKENDS["tiled"].function, given, torch.float32, backward=True)
    assert max(sizes) <= given.q.numel()


def test_tiled_dropout_has_its_mean_and_draws_the_same_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "TILE", 32)
    q, k = torch.zeros(1, 1, 100, 8), torch.zeros(1, 1, 100, 8)
    v = torch.eye(100)[None, None].requires_grad_()
    z = tiled.attention_tiled(q, k, v, bind(Everything(), 100, 100), scale=1.0, dropout=0.25)
    z.sum().backward()
    assert abs(float((z == 0).float().mean()) - 0.25) < 0.02  # 10,000 cells: the deviation is 0.0043
    # With values that pick out cells, the gradient of value s is the sum of column s: the same cells were dropped.
    assert error(v.grad[0, 0, :, 0], z[0, 0].sum(0)) < 1e-6
    again = tiled.attention_tiled(q, k, v, bind(Everything(), 100, 100), scale=1.0, dropout=0.25)
    assert not torch.equal(z, again)


def test_tiled_dropout_gradients_are_the_slopes() -> None:
    given = problem(bound("causal", 6, 6, "padded"))
    tensors = [x.requires_grad_() for x in (given.q, given.k, given.v)]

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(1)
        return tiled.attention_tiled(q, k, v, given.mask, scale=0.5, dropout=0.3)

    torch.autograd.gradcheck(function, tensors, fast_mode=True)


# ---- choosing


def ask(**options: Any) -> Request:
    q, kv = torch.zeros(1, 4, 8, 8), torch.zeros(1, 2, 8, 8)
    return request(q, kv, kv, options.pop("mask", bind(Causal(), 8, 8)), **options)


TRAINED = RelativeBias(torch.zeros(8, 4, requires_grad=True))

REFUSED = [
    ("sdpa", {"softcap": 5.0}, "soft-capped scores"),
    ("sdpa", {"dropout": 0.1}, "dropout"),
    ("sdpa", {"bias": TRAINED}, "a bias that is trained"),
    ("flex", {"sinks_H": torch.zeros(4)}, "sinks"),
    ("flex", {"dropout": 0.1}, "dropout"),
    ("flex", {"bias": TRAINED}, "gradients"),
]


@pytest.mark.parametrize(("name", "options", "why"), REFUSED)
def test_what_a_backend_cannot_do_is_refused_by_name_and_routed_elsewhere(name: str, options: Any, why: str) -> None:
    q, kv = torch.randn(1, 4, 8, 8), torch.randn(1, 2, 8, 8)
    mask = bind(Causal(), 8, 8)
    with pytest.raises(ClearheadError, match=why) as refusal:
        attend(q, kv, kv, mask, backend=name, scale=1.0, **options)
    assert name in str(refusal.value)
    assert "auto" in str(refusal.value)
    assert choose("auto", ask(**options)).name != name
    if "dropout" not in options:
        truth = attention(q, kv, kv, mask, scale=1.0, **options)
        assert error(attend(q, kv, kv, mask, scale=1.0, **options), truth) < TOLERANCE[torch.float32]


def test_flex_on_a_cpu_refuses_float64_and_gradients() -> None:
    q = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    with pytest.raises(ClearheadError, match="float64"):
        attend(q, q, q, bind(Causal(), 8, 8), backend="flex", scale=1.0)
    q = torch.zeros(1, 1, 8, 8, requires_grad=True)
    with pytest.raises(ClearheadError, match="gradients on cpu"):
        attend(q, q, q, bind(Causal(), 8, 8), backend="flex", scale=1.0)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ClearheadError, match="auto, reference, tiled, sdpa, products, prefill, flex"):
        choose("flash", ask())
    assert NAMES == ("auto", "reference", "tiled", "sdpa", "products", "prefill", "flex")


def test_auto_and_its_reasons() -> None:
    assert choose("auto", ask()).name == "sdpa"
    assert choose("auto", ask(sinks_H=torch.zeros(4), bias=Alibi(alibi_slopes(4)))).name == "sdpa"
    small = choose("auto", ask(softcap=5.0))
    assert small.name == "reference"
    assert "soft-capped scores" in small.reason
    n = int(LARGE**0.5)
    q = torch.empty(1, 1, n, 1, device="meta")
    assert choose("auto", request(q, q, q, bind(Causal(), n, n))).name == "sdpa"
    windowed = choose("auto", request(q, q, q, bind(Causal() & Window(9), n, n)))
    assert windowed.name == "tiled"
    assert "written out" in windowed.reason
    n_documents = torch.zeros(1, n, dtype=torch.long)
    q = torch.empty(1, 1, n, 1)
    apart = bind(Causal() & SameDocument(n_documents), n, n)
    assert choose("auto", request(q, q, q, apart)).name == "sdpa"
    assert choose("auto", request(q, q, q, apart, sinks_H=torch.zeros(1))).name == "tiled"
    assert choose("tiled", ask()).reason == "it was named"
    assert choose("auto", ask()) is choose("auto", ask())


@pytest.mark.parametrize("n_groups", [4, 2])
@pytest.mark.parametrize("backend", ["auto", "reference", "tiled", "sdpa"])
def test_attend_agrees(backend: str, n_groups: int) -> None:
    for shape in SHAPES:
        given = problem(bound("causal", *shape), n_groups=n_groups)
        z = attend(given.q, given.k, given.v, given.mask, backend=backend, scale=0.3)
        truth = attention(given.q, given.k, given.v, given.mask, scale=0.3)
        assert error(z, truth) < TOLERANCE[torch.float64]


# ---- cases


@pytest.mark.parametrize("name", ["reference", "tiled", "sdpa"])
def test_h02_fully_masked_rows(name: str) -> None:
    """H02: a row whose keys are all hidden gives zeros, not NaN and not an average (pytorch #103749)."""
    from dataclasses import dataclass

    from clearhead.ops.masks import Mask

    @dataclass(frozen=True)
    class Rows(Mask):
        """[1, 0, 0], [0, 0, 0], [1, 1, 1]"""

        def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
            return (q_pos == 2) | ((q_pos == 0) & (k_pos == 0))

    q, k, v = (torch.randn(1, 1, 3, 4, requires_grad=True) for _ in range(3))
    mask = bind(Rows(), 3, 3)
    z = BACKENDS[name].function(q, k, v, mask, scale=0.5)
    assert (z[0, 0, 1] == 0).all()
    assert error(z[0, 0, 0], v[0, 0, 0]) < 1e-6
    assert error(z[0, 0, 2], torch.softmax(q[0, 0, 2] @ k[0, 0].T * 0.5, -1) @ v[0, 0]) < 1e-6
    z.square().sum().backward()
    for tensor in (q, k, v):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()
    assert (q.grad[0, 0, 1] == 0).all()
    assert (traced(q, k, v, mask, scale=0.5).pattern_BHTS[0, 0, 1] == 0).all()


@pytest.mark.parametrize("name", ["reference", "tiled", "sdpa"])
@pytest.mark.parametrize("shape", [(1, 4), (2, 5), (3, 3)])
def test_h06_causal_with_fewer_queries_than_keys(name: str, shape: tuple[int, int]) -> None:
    """H06: the last queries of a text see what they see in the whole of it (pytorch #108108, #144858)."""
    n_queries, n_keys = shape
    q, k, v = (torch.randn(1, 2, n_keys, 8, dtype=torch.float64) for _ in range(3))
    whole = attention(q, k, v, bind(Causal(), n_keys, n_keys), scale=0.5)
    last = BACKENDS[name].function(q[:, :, -n_queries:], k, v, bind(Causal(), n_queries, n_keys), scale=0.5)
    assert error(last, whole[:, :, -n_queries:]) < TOLERANCE[torch.float64]


@pytest.mark.parametrize("name", ["reference", "tiled", "sdpa"])
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_h06_chunks_are_the_whole(name: str, chunk: int) -> None:
    """H06: prefill in chunks, with and without a window."""
    q, k, v = (torch.randn(1, 2, 10, 8, dtype=torch.float64) for _ in range(3))
    for mask in (Causal(), Causal() & Window(3)):
        whole = attention(q, k, v, bind(mask, 10, 10), scale=0.5)
        parts = []
        for end in range(chunk, 11, chunk):
            part = BACKENDS[name].function(
                q[:, :, end - chunk : end], k[:, :, :end], v[:, :, :end], bind(mask, chunk, end), scale=0.5
            )
            parts.append(part)
        assert error(torch.cat(parts, 2), whole) < TOLERANCE[torch.float64]
