"""What is decided is finished first, broken on purpose: searched for over worlds whose sink takes loads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from exactlyonce.ledger.fence import claim_epoch
from exactlyonce.reconcile import decide
from exactlyonce.reconcile.case import Case
from exactlyonce.reconcile.finish_first import with_what_is_decided_first
from exactlyonce.reconcile.finishing import Finishing
from exactlyonce.reconcile.identity import Identity
from exactlyonce.reconcile.verdicts import Decision
from tests.simulation import driver


@contextmanager
def a_new_start_forgets_what_is_decided() -> Iterator[None]:
    """A stream starts over while a batch is decided, and the first driver of its new life commits what that reads again."""
    first = with_what_is_decided_first

    def at_once(case: Case, decision: Decision) -> Decision:
        fresh = isinstance(case.examined, Identity) and case.examined.fresh
        return decision if fresh else first(case, decision)

    with mock.patch.object(decide, "with_what_is_decided_first", at_once):
        yield


@contextmanager
def a_halting_verdict_starts_no_driver_without_a_query() -> Iterator[None]:
    """A stream halts while a batch is decided, and its sink aborts what was prepared."""
    first = with_what_is_decided_first

    def at_once(case: Case, decision: Decision) -> Decision:
        return decision if decision.halts else first(case, decision)

    with mock.patch.object(decide, "with_what_is_decided_first", at_once):
        yield


@contextmanager
def a_stream_rests_whatever_is_decided() -> Iterator[None]:
    """A stream is suspended while a batch is decided, and its sink aborts what was prepared."""
    with mock.patch.object(Finishing, "at_rest", lambda self, status, version, plan: None):
        yield


@contextmanager
def whoever_finishes_takes_the_checkpoint() -> Iterator[None]:
    """A driver without a query counts as the checkpoint's writer, so that the end of another one that may live is forgotten."""

    def as_a_writer(*given: Any, writes: bool = True) -> Any:
        return claim_epoch(*given)

    with mock.patch.object(driver, "claim_epoch", as_a_writer):
        yield
