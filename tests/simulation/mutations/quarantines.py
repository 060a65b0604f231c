"""What a batch that is passed over is protected by, taken away piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from exactlyonce.ledger import publish
from exactlyonce_spark import quarantine


@contextmanager
def positions_move_past_a_batch_that_no_failure_names() -> Iterator[None]:
    """A batch is passed over, and its ranges are not among the failures."""
    with mock.patch.object(quarantine, "failures_of", lambda *_: ()):
        yield


@contextmanager
def partitions_that_have_landed_are_quarantined_too() -> Iterator[None]:
    """Of a batch that is passed over all ranges are quarantined, also those that landed one by one."""
    with mock.patch.object(quarantine, "not_landed", lambda batch, _: batch.ranges):
        yield


@contextmanager
def any_batch_is_quarantined_once_one_is_to_be() -> Iterator[None]:
    """A driver that is to pass over one batch passes over each that it runs."""
    with mock.patch.object(quarantine, "is_to_be_quarantined", lambda *_: True):
        yield


@contextmanager
def a_quarantined_range_that_is_read_again_stays_replayable() -> Iterator[None]:
    """The positions are set back to before what is in quarantine, and it stays there, although the stream reads it again."""
    with mock.patch.object(publish, "read_again", lambda *_: ()):
        yield
