"""Every store of a status checks the phase that it is about to write against the table of transitions.

A transition that is not in the table is a defect of ours, and what is done about it depends on which side is the safe one:

- The tests and the simulation raise, whatever the transition is, so that none is overlooked (STRICT, which only they set).
- An operator writes it and logs an error. The status is a write-ahead log of what is about to be done, or tells what is so
  already; to refuse the write would end the pass before a halt is told, and every pass after it, for a mistake in a table.
  Nothing that the promise rests on is read from a phase: who may land is in the ledger.
- Only a stream that has halted or completed is not taken out of that by a transition that is not in the table: the write is
  refused and the stream stays as it is. That it rests until a person has acted is what its phase alone says.
"""

from __future__ import annotations

import logging
import os

from exactlyonce.api.phases import TransitionReason, is_known
from exactlyonce.api.status import Phase

STRICT = "EXACTLYONCE_STRICT_PHASES"
"""Names the environment variable with which tests have every unknown transition raise."""

FINAL = (Phase.HALTED, Phase.COMPLETED)

log = logging.getLogger("exactlyonce.phases")


class TransitionUnknown(AssertionError):
    """A phase was to be written that does not follow on the one that stands."""


def check_transition(before: Phase, after: Phase, reason: TransitionReason | None) -> None:
    """Check a transition that is about to be written; log an error if the table does not have it.

    Raises:
        TransitionUnknown: if it is unknown and would take a stream out of Halted or Completed; in tests if it is unknown.
    """
    if is_known(before, after, reason):
        return
    why = "without a reason" if reason is None else f"for the reason {reason}"
    told = f"The phase {after} does not follow on {before} {why}; docs/phases.md has every transition."
    if before in FINAL or os.environ.get(STRICT):
        raise TransitionUnknown(told)
    log.error("%s It is written all the same; please report this defect.", told)
