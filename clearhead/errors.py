"""The one kind of error a user is meant to read."""

from __future__ import annotations


class ClearheadError(Exception):
    """Something is wrong with what was asked or given. The text names the thing and the remedy.

    The command line prints the text and exits with 1; any other exception is a defect of clearhead.
    """


class UsageError(ClearheadError):
    """The call itself is off (an option out of range, two that exclude each other). Exit code 2."""
