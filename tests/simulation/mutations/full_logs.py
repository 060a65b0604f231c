"""A log that is full, broken on purpose: searched for in a world whose log soon is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from exactlyonce.connectors.object_log import commit, log
from exactlyonce.connectors.object_log.fold import Fold
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.ledger import publish
from exactlyonce.reconcile import launching
from exactlyonce_spark import left_out


@contextmanager
def a_raise_obeys_the_limit() -> Iterator[None]:
    """A full log refuses a raise, a claim, a give-up and a deletion as it refuses a batch, and makes no snapshot first."""

    def as_it_is(self: ObjectLog, fold: Fold, *, may_fill: bool) -> Fold:
        return fold

    with mock.patch.object(log, "frees", lambda *_: False), mock.patch.object(ObjectLog, "_with_room", as_it_is):
        yield


@contextmanager
def a_full_log_takes_further_ranges() -> Iterator[None]:
    """A batch is quarantined, and a range given up as lost, whether or not the log has room for its ranges."""
    with (
        mock.patch.object(left_out, "why_no_room", lambda *_: None),
        mock.patch.object(publish, "why_no_room", lambda *_: None),
        mock.patch.object(commit, "why_no_room", lambda *_: None),
    ):
        yield


@contextmanager
def nothing_is_deleted_while_there_is_no_driver() -> Iterator[None]:
    """The operator leaves lost and given-up ranges to a driver, also where the log has no room for what that starts with."""
    with mock.patch.object(launching, "make_room", lambda *_: None):
        yield
