"""Looking inside a model, changing what is there, and drawing it."""

from __future__ import annotations

from clearhead.lens.attend import attention_report
from clearhead.lens.edit import edit
from clearhead.lens.record import look
from clearhead.lens.report import AttentionReport
from clearhead.lens.seen import Seen
from clearhead.lens.views.save import check_extension

__all__ = ["AttentionReport", "Seen", "attention_report", "check_extension", "edit", "look"]
