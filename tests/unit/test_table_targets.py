"""A table with a log takes each batch that has landed once, of either kind: whoever dies where, or commits late.

What others do to a table of one kind is in test_delta_target.py and test_iceberg_target.py.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.errors import Unreachable
from exactlyonce.ledger.fence import Fenced, claim_epoch, raise_epoch
from exactlyonce.ledger.publish import Adoption, adopt
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark import crash_points
from exactlyonce_spark.connectors.delta.table import TableBusy
from exactlyonce_spark.connectors.delta.target import TRIES
from tests.delta_rig import DeltaStream, Killed, act_at, dies
from tests.ledgers import STREAM, new_stream
from tests.object_logs import ledger_on
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.simulation.objects import MemoryObjects

DEATHS: Mapping[str, int | None] = {
    "table.created": None,
    "batch.rows-written": 2,
    "land.before-commit": 2,
    "batch.landed": 2,
    "table.before-commit": 2,
    "table.committed": 2,
    "batch.published": 2,
}
ORDER = list(DEATHS)


@pytest.fixture
def stream(kind: type[DeltaStream], tmp_path: Path) -> DeltaStream:
    return kind(tmp_path / "table", MemoryLedger(MemoryDatabase()))


@pytest.mark.parametrize("point", DEATHS)
@pytest.mark.parametrize("ledger", ["in memory", "object log"])
def test_a_driver_that_dies_is_followed_by_one_that_neither_loses_nor_doubles(
    kind: type[DeltaStream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, ledger: str
) -> None:
    kept = MemoryLedger(MemoryDatabase()) if ledger == "in memory" else ledger_on(MemoryObjects(), every=5)
    stream = kind(tmp_path / "table", kept)
    act_at(monkeypatch, point, DEATHS[point], dies)
    with pytest.raises(Killed):
        stream.land(stream.driver(), 1, 2)
    landed = 0 if DEATHS[point] is None else 2 if ORDER.index(point) >= ORDER.index("batch.landed") else 1
    shown = landed - (ORDER.index("batch.landed") <= ORDER.index(point) < ORDER.index("table.committed"))
    stream.require(shown)
    successor = stream.next_driver()
    stream.require(landed)
    stream.land(successor, landed + 1, 4)
    stream.require(4)


def test_a_driver_dies_at_every_point_of_a_table() -> None:
    elsewhere = {"table.registered", "table.columns-added"}  # tables that others have made
    assert {*crash_points.POINTS_OF_TABLES} - elsewhere < DEATHS.keys() < {*crash_points.ALL_POINTS}


@pytest.mark.parametrize("applied", [True, False], ids=["and had been taken", "and had not been taken"])
@pytest.mark.parametrize("successor", [True, False], ids=["the next driver", "the same driver"])
def test_a_commit_without_an_answer_is_settled_by_what_the_table_says(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch, applied: bool, successor: bool
) -> None:
    target = stream.driver()
    stream.land(target, 1, 1)
    log = type(stream.log())
    commit = log.commit

    def unanswered(self: Any, *given: Any) -> bool:
        monkeypatch.setattr(log, "commit", commit)
        if applied:
            commit(self, *given)
        raise Unreachable("no answer")

    monkeypatch.setattr(log, "commit", unanswered)
    with pytest.raises(Unreachable):
        stream.land(target, 2, 2)
    stream.require(2 if applied else 1)
    if successor:
        target = stream.next_driver()
    else:
        target.recover(stream.committables(), None)
    stream.require(2)
    stream.land(target, 3, 3)
    stream.require(3)


@pytest.mark.parametrize("point", ["batch.landed", "table.before-commit"])
def test_a_driver_that_wakes_behind_its_successor_commits_nothing_again(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Before its look at the table, and between its look and its commit.

    There Delta's conflict check has to tell; pyiceberg would put its files on top of the successor's snapshot, if it were let.
    """
    frozen, permit = stream.driver(), stream.permit

    def meanwhile() -> None:
        stream.land(stream.next_driver(), 3, 4)

    act_at(monkeypatch, point, 2, meanwhile)
    stream.land(frozen, 1, 2, permit)
    stream.require(4)
    with pytest.raises(Fenced):
        stream.land(frozen, 5, 5, permit)
    stream.require(4)


def test_two_drivers_that_commit_one_batch_at_once_add_its_files_once(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked at the table and found that it lacks the batch."""
    act_at(monkeypatch, "batch.landed", 2, dies)
    with pytest.raises(Killed):
        stream.land(stream.driver(), 1, 2)
    committables, both = stream.committables(), threading.Barrier(2)
    log = type(stream.log())
    commit = log.commit
    problems: list[BaseException] = []

    def at_once(self: Any, *given: Any) -> bool:
        with suppress(threading.BrokenBarrierError):
            both.wait(10)
        return commit(self, *given)

    def recovers() -> None:
        try:
            stream.target().recover(committables, None)
        except BaseException as problem:
            problems.append(problem)

    monkeypatch.setattr(log, "commit", at_once)
    threads = [threading.Thread(target=recovers) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    stream.require(2)


def test_a_table_that_somebody_changes_in_each_try_is_left_to_the_next_driver(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = stream.driver()
    stream.land(target, 1, 1)
    tries = count()
    monkeypatch.setattr(type(stream.log()), "commit", lambda *_: bool(next(tries) < 0))
    with pytest.raises(TableBusy, match=f"in each of {TRIES} tries"):
        stream.land(target, 2, 2)
    assert next(tries) == TRIES
    monkeypatch.undo()
    stream.land(stream.next_driver(), 3, 3)
    stream.require(3)


@pytest.mark.parametrize("point", ["land.before-commit", "batch.landed", "table.committed"])
def test_a_stream_whose_token_is_replaced_continues_with_what_it_has_landed(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """As a person who settles whose it is, or starts it over, has it: its ledger and the numbers of its batches continue."""
    act_at(monkeypatch, point, 2, dies)
    with pytest.raises(Killed):
        stream.land(stream.driver(), 1, 2)
    landed = 1 if point == "land.before-commit" else 2
    for number, token in enumerate(("token-2", "token-3")):
        epoch = Epoch(stream.permit.epoch + 1)
        row = new_stream(stream.ledger)
        raise_epoch(stream.ledger, row, epoch, "ticket")
        adopt(stream.ledger, STREAM, epoch, Adoption(row.owner, stream.ledger.database_identity(), token))
        stream.permit, _ = claim_epoch(stream.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")
        driver = stream.driver()
        stream.require(landed + number)
        stream.land(driver, landed + number + 1, landed + number + 1)
    stream.land(stream.next_driver(), landed + 3, landed + 3)
    stream.require(landed + 3)


def test_two_streams_write_to_one_table(stream: DeltaStream) -> None:
    one, other = stream.driver(), stream.log()
    other.stream = "shop/returns"
    assert other.view(other.author.life) is not None
    assert other.commit(None, {})
    stream.land(one, 1, 2)
    stream.land(stream.next_driver(), 3, 3)
    stream.require(3)
    seen = other.view(other.author.life)
    assert seen is not None
    assert seen.number == 0
