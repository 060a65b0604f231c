"""Mutations of what notices that the source is no longer what was read: fingerprints, leader epochs, topic ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.fingerprint import ZERO_ORIGIN_ID
from exactlyonce.positions.ranges import Positions
from exactlyonce.reconcile import new_generation, source_checks, standing
from exactlyonce.source.port import SourceView
from exactlyonce_spark import log_watch, source_check


@contextmanager
def fingerprints_not_compared() -> Iterator[None]:
    """The decision does not ask whether the last landed records are still the same: bounds and ids are all that it compares."""
    with mock.patch.object(source_checks, "_replaced_records", lambda seen, ledger: []):
        yield


@contextmanager
def zero_id_taken_for_an_id() -> Iterator[None]:
    """Two topics without an id count as the same topic, so that their records are not compared."""
    compared = source_checks._replaced_records

    def unless_ids_agree(seen: Any, ledger: LedgerView) -> list[Any]:
        return [item for item in compared(seen, ledger) if seen.source.origin_ids[item.data["topic"]] != ZERO_ORIGIN_ID]

    with mock.patch.object(source_checks, "_replaced_records", unless_ids_agree):
        yield


@contextmanager
def a_new_leader_is_believed() -> Iterator[None]:
    """A running driver does not ask a new leader for the records that have landed."""
    with mock.patch.object(source_check, "_require_same_records", lambda *a: None):
        yield


@contextmanager
def a_leader_may_change_while_a_batch_is_read() -> Iterator[None]:
    """What was read of the former leader lands beside the fingerprint of what the new one holds in its place."""
    with mock.patch.object(source_check, "_require_same_leaders", lambda *a: None):
        yield


@contextmanager
def leader_epochs_are_believed_without_an_id() -> Iterator[None]:
    """A topic that was recreated, without an id to tell, has the leader epoch 0 as before, and that is believed."""

    def with_ids(partitions: Any, origin_ids: Any, epochs: Any) -> frozenset[Any]:
        return frozenset(key for key in partitions if key not in epochs)

    with (
        mock.patch.object(source_check, "without_proof", with_ids),
        mock.patch.object(log_watch, "without_proof", with_ids),
    ):
        yield


@contextmanager
def fingerprints_lost_with_the_generation() -> Iterator[None]:
    """A new generation begins without the fingerprints of the positions that it continues at."""

    def forgetful(after: Positions, source: SourceView, goes_on: LedgerView | None = None) -> Any:
        return replace(standing_at(after, source, goes_on), fingerprints={})

    standing_at = standing.standing_at
    with mock.patch.object(new_generation, "standing_at", forgetful):
        yield
