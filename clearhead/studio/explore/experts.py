"""Who went where: the router's shares of every token, the experts that were chosen, and how evenly they are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from clearhead.errors import UsageError
from clearhead.ops.routing import Score, balance_loss, scores, weigh
from clearhead.studio.explore.parts import Number, RunId
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.explore.worked import log_sum
from clearhead.studio.operations import Answer, operation
from clearhead.taps import catalogue

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

LOGITS = ".router_logits"


@operation("explore.experts")
def experts(studio: Studio, *, run: RunId, layer: Number = 0, query: Number = 0) -> Answer | Iterator[Answer]:
    """One layer's router: what it made of each token, whom it chose, and with what weights.

    layer: of those that have experts, counted from 0.
    """
    one = studio.runs.get(run)
    is_there = studio.models.holds(one.model) and studio.runs.has(run, *_addresses(studio.models.get(one.model)))
    return promptly(is_there, lambda: _experts(studio, run, layer, query))


def _experts(studio: Studio, run: str, layer: int, query: int) -> Answer:
    one = studio.runs.get(run)
    model = studio.models.get(one.model)
    addresses = addresses_of(model)
    if layer >= len(addresses):
        raise UsageError(f"this model has {len(addresses)} layers with experts, so there is no number {layer}")
    every = [a.removesuffix(LOGITS) for a in addresses]
    studio.runs.record(run, _addresses(model))
    at = every[layer]
    config: Any = model.get_submodule(at).config
    router = config.router
    logits_TE = studio.runs.exact(run, f"{at}.router_logits")[0]
    chosen_TC = studio.runs.exact(run, f"{at}.chosen")[0]
    if query >= len(logits_TE):
        raise UsageError(f"there is no token {query}; there are 0 to {len(logits_TE) - 1}")
    # Where the chosen alone are compared (topk_softmax), the shares over all are shown beside their weights.
    shown: Score = "sigmoid" if router.score == "sigmoid" else "softmax"
    shares_TE = scores(logits_TE, shown)
    weights_TC = weigh(logits_TE, chosen_TC, router.score, renormalise=router.renormalise, scale=router.scale)
    used = [_used(studio.runs.exact(run, f"{path}.chosen")[0], config.n_experts) for path in every]
    balance = balance_loss([logits_TE], config.n_chosen)
    mine_C = weights_TC[query]
    logits_C = logits_TE[query][chosen_TC[query]]
    shares_C = shares_TE[query][chosen_TC[query]]
    # f and P of the balance, expert by expert.
    among_E = _used(logits_TE.topk(config.n_chosen, dim=-1).indices, config.n_experts)
    mean_E = logits_TE.float().softmax(-1).mean(0)
    return Answer(
        data={
            "layers": [_layer_of(address) for address in addresses],
            "at": at,
            "n_experts": config.n_experts,
            "n_chosen": config.n_chosen,
            "score": router.score,
            "renormalised": router.renormalise or router.score == "topk_softmax",
            "shared": config.shared is not None,
            "balance": float(balance),
            "chosen": chosen_TC[query].tolist(),
            "weights": mine_C.tolist(),
            "logits": logits_C.tolist(),
            "chosen_shares": shares_C.tolist(),
            "log_sum": log_sum(logits_TE[query]),
            "log_sum_chosen": log_sum(logits_C),
            "shares_sum": float(shares_C.double().sum()),
            "scale": router.scale,
            "renormalises": router.renormalise,
            "among": among_E.tolist(),
            "means": mean_E.tolist(),
            "shares": shares_TE[query].tolist(),
            "all_logits": logits_TE[query].tolist(),
            "counts": torch.bincount(chosen_TC.flatten().long(), minlength=config.n_experts).tolist(),
            "n_tokens": len(chosen_TC),
            "used": used[layer].tolist(),
        },
        arrays={
            "shares": shares_TE.float(),
            "chosen": chosen_TC.to(torch.int32),
            "weights": weights_TC.float(),
            "used": torch.stack(used),
        },
        python=one.opening(model)
        + "from clearhead.ops.routing import weigh\n\n"
        + f"seen = {one.look(f'{at}.router_logits', f'{at}.chosen')}\n"
        + f'logits, chosen = seen["{at}.router_logits"][0, {query}], seen["{at}.chosen"][0, {query}]\n'
        + f'weights = weigh(logits, chosen, "{router.score}", renormalise={router.renormalise}, scale={router.scale})\n'
        + "for expert, weight in zip(chosen.tolist(), weights.tolist(), strict=True):\n"
        + "    print(expert, weight)\n",
        printed=tuple(x for pair in zip(chosen_TC[query].tolist(), mine_C.tolist(), strict=True) for x in pair),
    )


def addresses_of(model: Any) -> list[str]:
    """Where a model's routers are, in the order of the pass."""
    return [address for address in catalogue(model) if address.endswith(LOGITS)]


def _addresses(model: Any) -> list[str]:
    """What is read of every layer."""
    every = [a.removesuffix(LOGITS) for a in addresses_of(model)]
    return [f"{at}.{name}" for at in every for name in ("router_logits", "chosen")]


def _used(chosen_TC: torch.Tensor, n_experts: int) -> torch.Tensor:
    """The share of the tokens that each expert worked on; they sum to the number of experts a token."""
    counts_E = torch.bincount(chosen_TC.flatten().long(), minlength=n_experts)
    return counts_E.float() / len(chosen_TC)


def _layer_of(address: str) -> str:
    return address.removesuffix(LOGITS).removesuffix(".ffn")
