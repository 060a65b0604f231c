"""What the run of a seed that went wrong ends with."""

from __future__ import annotations


class Violation(AssertionError):
    """A record was lost or doubled, or the stream did not come to an end that is right."""


class Broken(Exception):
    """The code that ran is no protocol at all: a call that does not fit what it calls. No mutation may be found by that."""
