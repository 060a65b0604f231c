"""Backfills of a folder on a cluster: their process looks up what they are of, and the operator counts ranges; in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.api.stream_replay import parse_replay
from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.launch.backfill import rows_of
from exactlyonce.launch.chosen_ranges import moments_of, named_in
from exactlyonce.launch.replay_pod import backfill_of
from exactlyonce.ledger.backfills import Backfill
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.named_spans import NamedSpan
from tests.resource_documents import document
from tests.unit.replay_documents import WHOLE, replay
from tests.unit.replays_in_memory import Pod
from tests.unit.test_backfills import BackfillWorld, asked_between
from tests.unit.test_uncounted_replays import FILES, KINESIS, part

MOMENTS = {"from": "2026-01-01T00:00:00Z", "until": "2026-02-01T00:00:00Z"}
PARTS = (part(0, 1, FailureStatus.QUARANTINED), part(2, 3, FailureStatus.QUARANTINED))
IDENTITY = {"metadata.uid": "u-1", "metadata.generation": 1, "metadata.resourceVersion": "1"}


class FolderBackfills(BackfillWorld):
    """A world whose process finds two ranges of files, whatever the orders say; a range lands as a whole."""

    def land(self, pod: Pod, most: int = WHOLE, fails: Collection[int] = ()) -> int:
        """Plan, unless that was done, and land so many ranges."""
        assert self.stream is not None
        assert pod.orders.asked == () or self.backfills, "only what was recorded is given to a process"
        order = backfill_of(
            parse_replay(self.replays["mend"], "the test"), rows_of(parse_stream(self.stream, "it").spec)
        )
        assert order is not None
        found = self.backfills.setdefault(order.name, Backfill(order.name, "table t", order.definition, PARTS))
        left = [row for row in found.parts if row.status is FailureStatus.QUARANTINED][:most]
        for row in left:
            self.backfills[order.name] = self.backfills[order.name].changed(
                [replace(row, status=FailureStatus.REPLAYED)]
            )
            self.table[row.partition, row.from_offset] += 1
        return len(left)


def world(source: dict[str, Any] = FILES, **spec: Any) -> FolderBackfills:
    """Return a stream over a folder and a StreamReplay of what was written in January."""
    made = FolderBackfills([], {"mend": replay(**{**asked_between(MOMENTS, "orders_v2"), **spec})})
    made.stream = document({**source, **IDENTITY})
    return made


SHARD = "shardId-000000000000"
NAMED = [
    {"origin": "orders", "partition": SHARD, "from": "TRIM_HORIZON", "until": "after 495"},
    {"origin": "orders", "partition": SHARD, "from": "after 497", "until": "after 499"},
]


def by_hand(source: dict[str, Any] = KINESIS, **spec: Any) -> FolderBackfills:
    """Return a stream and a StreamReplay of ranges of a shard by texts."""
    into = {"table": "orders_v2", "backfill": "mend"}
    made = FolderBackfills([], {"mend": replay(**{"from": {"ranges": {"named": NAMED}}, "into": into, **spec})})
    made.stream = document({**source, **IDENTITY})
    return made


ONCE = {(row.partition, row.from_offset): 1 for row in PARTS}


@pytest.mark.parametrize("made_of", [world, by_hand], ids=["by time", "by hand"])
@pytest.mark.parametrize("source", [FILES, KINESIS], ids=["a folder", "a data stream"])
def test_a_backfill_lands_each_range_once_whatever_effect_an_operator_dies_before(
    source: dict[str, Any], made_of: Callable[[dict[str, Any]], FolderBackfills]
) -> None:
    has_died, died = True, 0
    while has_died:
        made = made_of(source)
        made.dies_before = died
        status = made.until_final()
        assert made.table == ONCE, f"died before effect {died}"
        assert (status.phase, status.message) == (ReplayPhase.SUCCEEDED, "2 of 2 ranges have landed.")
        has_died, died = made.has_died, died + 1
    assert died > 6


def test_what_a_backfill_by_hand_is_of_is_in_its_order_in_whatever_order_it_is_asked_for() -> None:
    orders = []
    for named in (NAMED, NAMED[::-1], NAMED[:1]):
        made = parse_replay(by_hand(**{"from": {"ranges": {"named": named}}}).replays["mend"], "the test")
        order = backfill_of(made, "rows")
        assert order is not None
        assert moments_of(order) is None
        orders.append(order)
    assert orders[0] == orders[1] != orders[2]
    assert named_in(orders[0]) == (
        NamedSpan("orders", SHARD, "TRIM_HORIZON", "after 495"),
        NamedSpan("orders", SHARD, "after 497", "after 499"),
    )


@pytest.mark.parametrize("landed", [None, 0, 1, 2])
def test_a_backfill_of_a_folder_whose_pod_is_killed_is_continued_with_what_it_recorded(landed: int | None) -> None:
    made = world()
    made.run_pass()
    if landed is not None:
        made.land(made.pod(), landed)
    made.end(made.pod())
    status = made.until_final()
    assert made.table == ONCE
    assert (status.phase, status.attempt) == (ReplayPhase.SUCCEEDED, 1 if landed == 2 else 2)


def test_a_dry_run_says_that_only_the_process_can_tell_and_starts_none() -> None:
    made = world(dryRun=True)
    status = made.until_final()
    assert "Only the process of the replay can tell what lies in these ranges" in status.message
    assert not made.pods
    assert not made.backfills


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (world(KINESIS, into=None), "of source.kinesis, whose positions count no records"),
        (world(into=None), "of source.files, whose positions count no records"),
        (by_hand({}), "positions of source.kafka are numbers; write them as such (positions instead of named)"),
    ],
)
def test_what_cannot_be_backfilled_is_refused_before_a_process_starts(made: FolderBackfills, words: str) -> None:
    if "into" in made.replays["mend"]["spec"] and made.replays["mend"]["spec"]["into"] is None:
        del made.replays["mend"]["spec"]["into"]
    status = made.until_final()
    assert words in status.message
    assert not made.pods
