"""A driver removes superseded generations: those that are too many or too old, and never what a decision may read."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from exactlyonce.api.checkpoint_retention import GenerationRetention
from exactlyonce.checkpoint.collecting import last_planned
from exactlyonce.checkpoint.generation import Generation, list_generations
from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.old_generations import remove_superseded

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
PERMIT = Permit("shop/orders", Epoch(9), "claim-9")
TWO_FOR_A_DAY = GenerationRetention(count=2, age=timedelta(days=1))


@dataclass(frozen=True)
class Row:
    """What the ledger says of the stream, as far as it is asked here."""

    checkpoint_path: str | None
    epoch: int = 9
    claim: str = "claim-9"
    landed_batch: int | None = 41
    status: BatchStatus = BatchStatus.LANDED

    @property
    def stream(self) -> Row:
        return self

    def batch(self, number: int) -> Row | None:
        return self if number == 41 else None


class LedgerOf:
    """Answers with each row in turn, and with the last one from then on."""

    def __init__(self, *rows: Row | None) -> None:
        self._rows = list(rows)

    def view(self, stream_id: str) -> Row | None:
        assert stream_id == "shop/orders"
        return self._rows.pop(0) if len(self._rows) > 1 else self._rows[0]


def planned(store: LocalLogStore, number: int, days_ago: float, *, attempt: int = 1) -> Generation:
    """Write the log of a generation whose last batch was planned so long ago."""
    generation = Generation(number, Epoch(attempt))
    moment = int((NOW - timedelta(days=days_ago)).timestamp() * 1000)
    for batch, milliseconds in ((9, 0), (10, moment)):
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": milliseconds, "conf": {}})
        store.create(f"{generation.folder}/offsets/{batch}", f'v1\n{metadata}\n{{"orders":{{"0":1}}}}'.encode())
    store.create(f"{generation.folder}/metadata", b"{}")
    return generation


def removed_from(
    store: LocalLogStore, ledger: LedgerOf, retention: GenerationRetention = TWO_FOR_A_DAY, **more: Any
) -> tuple[bool, list[int]]:
    """Remove, and return whether a batch had landed and which numbers are left."""
    has_landed = remove_superseded(cast("Ledger", ledger), PERMIT, store, retention, NOW, **more)
    return has_landed, [it.number for it in list_generations(store)]


@pytest.fixture
def store(tmp_path: Path) -> LocalLogStore:
    """A location with five generations, an hour apart; the fifth is the current one."""
    store = LocalLogStore(str(tmp_path))
    store.create("stream.json", b"{}")
    for number in range(1, 6):
        planned(store, number, (5 - number) / 24)
    return store


@pytest.fixture
def row(store: LocalLogStore) -> Row:
    """The fifth is published, and a batch has landed in it."""
    return Row(Generation(5, Epoch(1)).path(store.location))


def test_the_newest_superseded_generations_are_kept_and_the_others_removed_with_a_line_in_the_log(
    store: LocalLogStore, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert removed_from(store, LedgerOf(row)) == (True, [3, 4, 5])
    assert [record.message for record in caplog.records] == [
        f"Removed {store.location}/generation-00000{number}-a1, which newer ones have superseded." for number in (1, 2)
    ]
    assert (Path(store.location) / "stream.json").exists()


def test_a_generation_that_is_too_old_is_removed_but_for_the_newest_which_a_restored_ledger_may_name(
    tmp_path: Path,
) -> None:
    store = LocalLogStore(str(tmp_path))
    for number, days_ago in ((1, 0.9), (2, 1.1), (3, 40), (4, 0)):
        planned(store, number, days_ago)
    row = Row(Generation(4, Epoch(1)).path(store.location))
    assert removed_from(store, LedgerOf(row), GenerationRetention(count=3, age=timedelta(days=1))) == (True, [1, 3, 4])


def test_a_generation_whose_age_nobody_can_tell_is_kept_until_it_is_one_too_many(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path))
    texts = {
        1: b"v1\n{}",
        2: b'v1\n{"batchTimestampMs": 9e99}\n-',
        3: f'v1\n{{"batchTimestampMs":{10**40}}}\n-'.encode(),
    }
    for number, text in texts.items():
        store.create(f"{Generation(number, Epoch(1)).folder}/offsets/4", text)
    store.create("generation-000004-a1/metadata", b"{}")
    current = planned(store, 5, 0)
    ledger = LedgerOf(Row(current.path(store.location)))

    assert [last_planned(store, it) for it in list_generations(store)[:4]] == [None] * 4
    assert removed_from(store, ledger, GenerationRetention(count=4, age=timedelta(hours=1))) == (True, [1, 2, 3, 4, 5])
    assert removed_from(store, ledger, GenerationRetention(count=3, age=timedelta(hours=1))) == (True, [2, 3, 4, 5])


def test_what_another_attempt_may_be_writing_is_left_alone(store: LocalLogStore) -> None:
    planned(store, 6, 40, attempt=2)
    planned(store, 6, 40, attempt=1)
    planned(store, 7, 40)
    row = Row(Generation(6, Epoch(2)).path(store.location))
    assert removed_from(store, LedgerOf(row)) == (True, [4, 5, 6, 6, 7])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"epoch": 10}, id="a successor's epoch was raised"),
        pytest.param({"claim": "claim-8"}, id="another driver has claimed the epoch"),
        pytest.param({"status": BatchStatus.SEEDED}, id="nothing has landed since the generation was seeded"),
        pytest.param({"landed_batch": None}, id="nothing has ever landed"),
        pytest.param({"landed_batch": 40}, id="the row of the landed batch is not there"),
        pytest.param({"checkpoint_path": None}, id="no generation is published"),
        pytest.param({"checkpoint_path": "/elsewhere/generation-000005-a1"}, id="the checkpoint has moved"),
        pytest.param({"checkpoint_path": "/elsewhere/state"}, id="the path names no generation"),
    ],
)
def test_nothing_is_removed_where_earlier_generations_may_matter(
    store: LocalLogStore, row: Row, change: dict[str, Any]
) -> None:
    assert removed_from(store, LedgerOf(replace(row, **change))) == (False, [1, 2, 3, 4, 5])
    assert removed_from(store, LedgerOf(None)) == (False, [1, 2, 3, 4, 5])


def test_a_driver_that_is_superseded_meanwhile_removes_no_more(store: LocalLogStore, row: Row) -> None:
    successor = replace(row, epoch=10)
    assert removed_from(store, LedgerOf(row, row, successor)) == (True, [2, 3, 4, 5])


def test_a_driver_that_ends_removes_no_more(store: LocalLogStore, row: Row) -> None:
    ends = iter([False, True])
    assert removed_from(store, LedgerOf(row), has_ended=lambda: next(ends, True)) == (True, [2, 3, 4, 5])


def test_what_a_crash_has_left_of_a_generation_is_removed_the_next_time(store: LocalLogStore, row: Row) -> None:
    """Also where it went by its age: S3 removes the log that tells it before the state."""
    (Path(store.location) / "generation-000002-a1" / "metadata").unlink()
    for number in (9, 10):
        (Path(store.location) / f"generation-000002-a1/offsets/{number}").unlink()
    store.create("generation-000002-a1/state/0/0/1.delta", b"x")
    assert removed_from(store, LedgerOf(row), GenerationRetention(count=9, age=timedelta(days=9))) == (
        True,
        [1, 3, 4, 5],
    )
