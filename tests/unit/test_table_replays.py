"""Replays into tables with a log: the next batch commits what they have landed, once, and nothing is committed that is gone.

Both kinds of table are real ones; ids are counted by the table's library and by DuckDB (`DeltaStream.seen`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.connectors.files.manifest import ManifestUnreadable
from exactlyonce.errors import LostRace, Refused, Unreachable
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.fence import Fenced, claim_epoch, raise_epoch
from exactlyonce.ledger.publish import Adoption, adopt
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.ledger.replay_decisions import ReplayDecision, read_decisions
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark import landing, manifest_landing
from exactlyonce_spark.connectors.delta import replaying
from exactlyonce_spark.connectors.delta.manifest import TableManifest
from exactlyonce_spark.connectors.delta.table import LedgerBehindTable
from exactlyonce_spark.replay_outcome import ReplayPace
from tests.delta_rig import DeltaStream, Killed, act_at, dies
from tests.ledgers import P0, STREAM, new_stream
from tests.replayed_lake import LEDGERS
from tests.replayed_tables import (
    IN_QUARANTINE,
    KEY,
    at_its_files,
    begun,
    files_of_replays,
    land_nothing,
    life_of,
    own,
    quarantine,
    replayed,
    stream_at,
    told,
    waiting,
)
from tests.simulation.database import MemoryDatabase, MemoryLedger

ONCE = Counter(IN_QUARANTINE)


@pytest.fixture
def stream(kind: type[DeltaStream], tmp_path: Path) -> DeltaStream:
    return stream_at(kind, tmp_path)


@pytest.mark.parametrize("ledger", LEDGERS)
def test_what_replays_land_is_in_the_table_once_from_the_next_batch_on(
    kind: type[DeltaStream], tmp_path: Path, ledger: str
) -> None:
    stream = stream_at(kind, tmp_path, ledger, partition_by=("day",))
    outcome = replayed(stream, "mine", most=4)
    assert (outcome.landed, outcome.rows, outcome.told) == (10, 10, [])
    assert stream.seen() == own(2)
    driver = stream.next_driver()
    assert stream.seen() == own(2), "a driver that starts lands nothing"
    stream.land(driver, 3, 4)
    assert stream.seen() == own(4) + ONCE
    assert not waiting(stream)
    stream.land(stream.next_driver(), 5, 5)
    assert stream.seen() == own(5) + ONCE


def test_a_batch_without_rows_of_its_own_commits_what_a_replay_has_landed(stream: DeltaStream) -> None:
    replayed(stream, "mine")
    driver = stream.next_driver()
    land_nothing(stream, driver, 3)
    assert stream.seen() == own(2) + ONCE
    stream.land(stream.next_driver(), 4, 4)
    assert stream.seen() == own(2) + Counter([8, 9]) + ONCE


@pytest.mark.parametrize("ledger", LEDGERS)
def test_a_load_that_was_decided_for_the_sink_before_is_no_file_and_stays_until_it_is_settled(
    kind: type[DeltaStream], tmp_path: Path, ledger: str
) -> None:
    stream = stream_at(kind, tmp_path, ledger)
    replayed(stream, "mine")
    load = Committable("exactlyonce:a", "7", 10, Ranges({P0: OffsetRange(0, 10)}))
    decision = ReplayDecision("theirs", DecidedBatch(BatchNumber(1), (load,), sink="db.events at fe:8030"))
    with stream.ledger.transaction() as transaction:
        transaction.write_replayed(STREAM, decision.name, decision.to_json())
    stream.land(stream.next_driver(), 3, 3)
    stream.land(stream.next_driver(), 4, 4)
    assert stream.seen() == own(4) + ONCE
    assert read_decisions(stream.ledger, STREAM) == (decision,)


def test_files_of_a_replay_that_died_before_the_ledger_are_never_committed(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_its_files(monkeypatch, dies)
    with pytest.raises(Killed):
        replayed(stream, "mine")
    assert len(files_of_replays(stream)) == 10
    stream.land(stream.next_driver(), 3, 3)
    assert stream.seen() == own(3)
    assert replayed(stream, "another").landed == 10
    stream.land(stream.next_driver(), 4, 4)
    assert stream.seen() == own(4) + ONCE
    assert len(files_of_replays(stream)) == 20


def test_a_replay_whose_ranges_another_has_taken_lands_nothing(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = begun(stream, "mine")
    at_its_files(monkeypatch, lambda: replayed(stream, "another"))
    outcome = late.run([KEY])
    assert outcome.landed == 0
    assert "is not held by this replay any more" in outcome.told[0]
    stream.land(stream.next_driver(), 3, 3)
    assert stream.seen() == own(3) + ONCE


@pytest.mark.parametrize("point", ["land.before-commit", "batch.landed", "table.before-commit", "table.committed"])
def test_a_driver_that_dies_over_what_it_takes_over_is_followed_by_one_that_neither_loses_nor_doubles(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    replayed(stream, "mine")
    act_at(monkeypatch, point, 3, dies)
    with pytest.raises(Killed):
        stream.land(stream.next_driver(), 3, 3)
    has_landed = point != "land.before-commit"
    assert bool(waiting(stream)) is not has_landed
    successor = stream.next_driver()
    assert stream.seen() == (own(3) + ONCE if has_landed else own(2))
    stream.land(successor, 4 if has_landed else 3, 4)
    assert stream.seen() == own(4) + ONCE


def test_a_driver_that_wakes_behind_its_successor_commits_what_it_took_over_no_second_time(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed(stream, "mine")
    frozen, permit = stream.next_driver(), stream.permit
    act_at(monkeypatch, "table.before-commit", 3, lambda: stream.land(stream.next_driver(), 4, 4))
    stream.land(frozen, 3, 3, permit)
    assert stream.seen() == own(4) + ONCE


def test_a_driver_that_was_superseded_before_it_landed_takes_nothing_over(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, permit = stream.next_driver(), stream.permit

    def meanwhile() -> None:
        stream.next_driver()
        replayed(stream, "mine")

    act_at(monkeypatch, "batch.rows-written", 3, meanwhile)
    with pytest.raises(Fenced):
        stream.land(frozen, 3, 3, permit)
    assert waiting(stream)
    stream.land(stream.next_driver(), 3, 3)
    assert stream.seen() == own(3) + ONCE


def test_no_file_is_asked_about_while_a_transaction_is_open_and_none_twice_for_one_take_over(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger's server ends a transaction that takes too long, and each file may be a request to a bucket far away."""
    driver = stream.next_driver()
    replayed(stream, "mine", most=4)
    log, ledger = type(stream.log()), type(stream.ledger)
    asked: Counter[str] = Counter()
    facts, transaction, is_open = log.facts, ledger.transaction, [False]

    def counted(self: Any, files: Any) -> Any:
        assert not is_open[0], "the stream is locked meanwhile"
        asked.update(file.path for file in files)
        return facts(self, files)

    @contextmanager
    def opened(self: Any, **how: Any) -> Iterator[Any]:
        with transaction(self, **how) as it:
            is_open[0] = True
            try:
                yield it
            finally:
                is_open[0] = False

    races = [LostRace("another one was first")] * 3

    def passes(point: str, batch: int | None = None) -> None:
        if point == "land.before-commit" and races:
            raise races.pop()
        if point == "batch.landed":
            assert sorted(asked.values()) == [1] * 10
            assert all(path.startswith("replay-") for path in asked)

    monkeypatch.setattr(log, "facts", counted)
    monkeypatch.setattr(ledger, "transaction", opened)
    for module in (landing, manifest_landing):
        monkeypatch.setattr(module, "reached", passes)
    stream.land(driver, 3, 3)
    assert not races
    assert stream.seen() == own(3) + ONCE


def test_what_replays_land_once_a_batch_has_looked_is_looked_at_as_well_before_it_is_taken_over(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = stream.next_driver()
    replay = begun(stream, "mine", most=4)
    replay._pace = ReplayPace(4, is_to_end=lambda: bool(waiting(stream)))
    log = type(stream.log())
    facts = log.facts
    asked: list[int] = []

    def behind_which_more_lands(self: Any, files: Any) -> Any:
        asked.append(len(files))
        if len(asked) == 1:
            assert begun(stream, "another").run([RangeKey(KEY.batch, P0, 14)]).landed == 6
        return facts(self, files)

    def begins() -> None:
        assert replay.run([KEY]).landed == 4
        monkeypatch.setattr(log, "facts", behind_which_more_lands)

    act_at(monkeypatch, "batch.rows-written", 3, begins)
    stream.land(driver, 3, 3)
    assert stream.seen() == own(3) + ONCE
    assert not waiting(stream)


def test_a_storage_that_does_not_answer_as_a_batch_takes_over_lets_nothing_land(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed(stream, "mine")
    driver = stream.next_driver()
    with monkeypatch.context() as patch:

        def unanswered(*_: object) -> None:
            raise Unreachable("no answer")

        act_at(patch, "batch.rows-written", 3, lambda: patch.setattr(type(stream.log()), "facts", unanswered))
        with pytest.raises(Unreachable):
            stream.land(driver, 3, 3)
    assert waiting(stream)
    assert max(stream.committables()) == 2
    stream.land(stream.next_driver(), 3, 3)
    assert stream.seen() == own(3) + ONCE


def test_a_replay_in_front_of_a_ledger_that_is_behind_the_table_lands_nothing(
    kind: type[DeltaStream], tmp_path: Path
) -> None:
    database = MemoryDatabase()
    stream = kind(tmp_path / "table", MemoryLedger(database))
    stream.land(stream.driver(), 1, 2)
    quarantine(stream)
    before = database.tables.copy()
    replayed(stream, "mine")
    stream.land(stream.next_driver(), 3, 3)
    database.restore(before)
    with pytest.raises(LedgerBehindTable, match="has batch 3 of this stream, which the ledger does not know"):
        begun(stream, "another")


@pytest.mark.parametrize("batches", [1, 2])
def test_a_replay_that_begins_while_a_driver_lands_takes_the_ledger_for_no_restored_one(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    driver, log = stream.next_driver(), type(stream.log())
    view = log.view

    def behind_a_landing(self: Any, life: str) -> Any:
        monkeypatch.setattr(log, "view", view)
        stream.land(driver, 3, 2 + batches)
        return view(self, life)

    monkeypatch.setattr(log, "view", behind_a_landing)
    assert replayed(stream, "mine").landed == 10
    stream.land(stream.next_driver(), 3 + batches, 3 + batches)
    assert stream.seen() == own(3 + batches) + ONCE


def test_a_replay_that_a_restored_ledger_has_forgotten_is_landed_again_and_counts_once(
    kind: type[DeltaStream], tmp_path: Path
) -> None:
    database = MemoryDatabase()
    stream = kind(tmp_path / "table", MemoryLedger(database))
    stream.land(stream.driver(), 1, 2)
    quarantine(stream)
    before = database.tables.copy()
    replayed(stream, "mine")
    database.restore(before)
    replayed(stream, "mine")
    stream.land(stream.next_driver(), 3, 3)
    assert stream.seen() == own(3) + ONCE


def test_where_nothing_has_landed_a_replay_needs_the_table_that_a_driver_makes(
    kind: type[DeltaStream], tmp_path: Path
) -> None:
    stream = kind(tmp_path / "table", LEDGERS["in memory"]())
    quarantine(stream)
    with pytest.raises(Refused, match=r"There is no table at .* yet; start the stream"):
        begun(stream, "early")
    driver = stream.driver()
    replayed(stream, "mine")
    stream.land(driver, 1, 1)
    assert stream.seen() == own(1) + ONCE


def test_the_history_says_how_many_rows_of_a_commit_are_of_replays(stream: DeltaStream) -> None:
    replayed(stream, "mine")
    stream.land(stream.next_driver(), 3, 3)
    assert told(stream, "replayed") == ["10"]


def test_a_stream_that_the_ledger_does_not_know_is_to_be_started_first() -> None:
    with pytest.raises(NothingToReplayInto, match="start the stream first"):
        replaying.stream_in(MemoryLedger(MemoryDatabase()), STREAM)


def test_a_record_that_another_release_wrote_is_named(stream: DeltaStream) -> None:
    with pytest.raises(
        ManifestUnreadable, match="files that the replay replay-x has landed cannot be read by this release"
    ):
        stream.target().require_replayed({"replay-x": json.dumps({"table": 1})})


@pytest.mark.parametrize("point", [None, "batch.landed", "table.committed"])
def test_what_was_replayed_in_a_former_life_is_committed_once_by_a_driver_of_the_next_one(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch, point: str | None
) -> None:
    """A person settles whose the stream is, before the next batch takes it over, or once it has."""
    replayed(stream, "mine")
    if point is not None:
        act_at(monkeypatch, point, 3, dies)
        with pytest.raises(Killed):
            stream.land(stream.next_driver(), 3, 3)
    row, epoch = new_stream(stream.ledger), Epoch(stream.permit.epoch + 1)
    raise_epoch(stream.ledger, row, epoch, "ticket")
    adopt(stream.ledger, STREAM, epoch, Adoption(row.owner, stream.ledger.database_identity(), "token-2"))
    stream.permit, _ = claim_epoch(stream.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")
    first = 3 if point is None else 4
    stream.land(stream.driver(), first, first)
    assert stream.seen() == own(first) + ONCE
    stream.land(stream.next_driver(), first + 1, first + 1)
    assert stream.seen() == own(first + 1) + ONCE


def test_a_batch_keeps_its_own_life_over_what_it_takes_from_a_former_one(stream: DeltaStream) -> None:
    replayed(stream, "mine")
    (text,) = waiting(stream).values()
    former = TableManifest.from_json(BatchNumber(0), text)
    assert former.life == life_of(stream.ledger)
    number = BatchNumber(2)
    landed = TableManifest.from_json(number, stream.committables()[number])
    batch = TableManifest(former.table, "another life", landed.manifest)
    taken = batch.with_replayed([former])
    assert (taken.life, taken.number, len(taken.manifest.files)) == ("another life", 3, 12)
