"""Looking inside a model, changing what is there, and drawing it."""

from __future__ import annotations

from clearhead.lens.ablate import forbid, mean, patch, resample, steer, zero
from clearhead.lens.accumulated import accumulated
from clearhead.lens.attend import attention_report
from clearhead.lens.attribution import attribution
from clearhead.lens.attribution_patching import attribution_patching
from clearhead.lens.edit import edit
from clearhead.lens.fold import fold
from clearhead.lens.generating import edit_generating, look_generating
from clearhead.lens.integrated_gradients import integrated_gradients
from clearhead.lens.limits import at
from clearhead.lens.logit_lens import logit_lens
from clearhead.lens.metrics import logit_difference
from clearhead.lens.patching import patching
from clearhead.lens.paths import path_patching
from clearhead.lens.record import look
from clearhead.lens.report import AttentionReport
from clearhead.lens.rollout import rollout
from clearhead.lens.seen import Seen
from clearhead.lens.shards import SeenFolder, look_through
from clearhead.lens.views.save import check_extension
from clearhead.lens.vocabulary import head_output, ov

__all__ = [
    "AttentionReport",
    "Seen",
    "SeenFolder",
    "accumulated",
    "at",
    "attention_report",
    "attribution",
    "attribution_patching",
    "check_extension",
    "edit",
    "edit_generating",
    "fold",
    "forbid",
    "head_output",
    "integrated_gradients",
    "logit_difference",
    "logit_lens",
    "look",
    "look_generating",
    "look_through",
    "mean",
    "ov",
    "patch",
    "patching",
    "path_patching",
    "resample",
    "rollout",
    "steer",
    "zero",
]
