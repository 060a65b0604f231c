"""Replays into files: every reader counts what one has landed once, and what one that died has written counts for nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet
import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.connectors.files.connector import FILES
from exactlyonce.connectors.files.manifest import DataFile, Manifest, ReplayWrite, Write, digest_of, life_of
from exactlyonce.connectors.files.rebuilt import PositionsUnclear, counted_files
from exactlyonce.connectors.files.replayed import replayed_manifests, with_replayed
from exactlyonce.connectors.files.spark_log import LogUnfit, address_of
from exactlyonce.connectors.files.spec import FilesSink, ManifestKind
from exactlyonce.connectors.files.tenancy import FilesLost, PathOfAnother
from exactlyonce.errors import Refused
from exactlyonce.launch.backfill import BackfillRefused, into_table
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.given_ranges import look_at
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.ledger.replay_decisions import ReplayDecision, read_decisions
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce_spark.connectors.files import replaying
from exactlyonce_spark.connectors.files.replaying import PreparedFolderOfReplay
from tests.compacted_lake import COLUMNS, Killed
from tests.ledgers import P0, STREAM
from tests.replayed_lake import IN_QUARANTINE, KEY, LEDGERS, ReplayedLake, Writer, empty_lake_at, lake_at
from tests.resource_documents import document
from tests.simulation.database import MemoryDatabase, MemoryLedger


@pytest.fixture
def lake(tmp_path: Path) -> ReplayedLake:
    return lake_at(tmp_path)


def dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whoever replays die once the files of a chunk are written."""

    def reached(point: str, batch: int | None = None) -> None:
        raise Killed

    monkeypatch.setattr(replaying, "reached", reached)


@pytest.mark.parametrize("ledger", LEDGERS)
def test_what_a_replay_lands_is_listed_at_once_and_shown_to_spark_with_the_next_batch(
    tmp_path: Path, ledger: str
) -> None:
    lake = lake_at(tmp_path, ledger)
    outcome = lake.replay("mine", most=4)
    assert (outcome.landed, outcome.rows, outcome.told) == (10, 10, [])
    assert lake.ids(lake.listed()) == lake.own(4) + IN_QUARANTINE
    assert None in lake.batches()
    assert lake.ids(lake.shown()) == lake.own(4)
    lake.next_driver()
    assert lake.ids(lake.shown()) == lake.own(4), "a driver that starts lands nothing"
    lake.land(5, 6)
    assert None not in lake.batches()
    for names in (lake.listed(), lake.shown()):
        assert lake.ids(names) == lake.own(6) + IN_QUARANTINE
    assert lake.orphans() == []
    lake.land(7, 12)
    assert lake.compact() > 9, "the files of the replay are merged with those of batches"
    lake.next_driver()
    for names in (lake.listed(), lake.shown()):
        assert lake.ids(names) == lake.own(12) + IN_QUARANTINE


@pytest.mark.parametrize("ledger", LEDGERS)
def test_a_load_that_was_decided_for_the_sink_before_is_no_file_to_anybody(tmp_path: Path, ledger: str) -> None:
    lake = lake_at(tmp_path, ledger)
    load = Committable("exactlyonce:a", "7", 10, Ranges({P0: OffsetRange(0, 10)}))
    decision = ReplayDecision("theirs", DecidedBatch(BatchNumber(1), (load,), sink="db.events at fe:8030"))
    with lake.ledger.transaction() as transaction:
        transaction.write_replayed(STREAM, decision.name, decision.to_json())
    assert lake.replay("mine").told == []
    assert lake.ids(lake.listed()) == lake.own(4) + IN_QUARANTINE
    lake.next_driver()
    lake.land(5, 6)
    assert lake.ids(lake.shown()) == lake.ids(lake.listed()) == lake.own(6) + IN_QUARANTINE
    assert lake.orphans() == []
    assert read_decisions(lake.ledger, STREAM) == (decision,)


class ReadCommitted:
    """A ledger each of whose statements sees what was committed before it; `between` is called once, after the first one."""

    def __init__(self, of: Ledger, between: Callable[[], None]) -> None:
        self._of = of
        self._between = [between]
        self.view = of.view

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        yield self

    def _read(self, name: str, stream_id: str) -> Any:
        with self._of.transaction() as transaction:
            found = getattr(transaction, name)(stream_id)
        if self._between:
            self._between.pop()()
        return found

    def read_committables(self, stream_id: str) -> Any:
        return self._read("read_committables", stream_id)

    def read_replayed(self, stream_id: str) -> Any:
        return self._read("read_replayed", stream_id)


@pytest.mark.parametrize("is_merged", [False, True], ids=["taken over", "taken over and merged"])
def test_what_a_batch_takes_over_while_it_is_listed_is_listed_once(lake: ReplayedLake, is_merged: bool) -> None:
    lake.land(5, 8)
    lake.replay("one")

    def between() -> None:
        lake.land(9, 20)
        if is_merged:
            assert lake.compact() > 0

    ledger = cast("Ledger", ReadCommitted(lake.ledger, between))
    files = FILES.landed(lake.folder.sink, ledger, STREAM)
    ids = [id_ for file in files for id_ in pyarrow.parquet.read_table(file.address)["id"].to_pylist()]
    assert Counter(ids) == IN_QUARANTINE + lake.own(20)


def test_without_a_log_for_spark_the_ledgers_list_is_the_only_one(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, manifest=ManifestKind.NONE)
    lake.replay("mine")
    assert lake.compact() == 4, "what no batch has taken over is left alone"
    lake.land(5, 5)
    assert lake.ids(lake.listed()) == lake.own(5) + IN_QUARANTINE


@pytest.mark.parametrize("ledger", LEDGERS)
def test_the_files_of_a_replay_that_died_before_the_ledger_count_for_nobody_and_go_once_another_has_its_ranges(
    tmp_path: Path, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_at(tmp_path, ledger)
    with monkeypatch.context() as patch:
        dies(patch)
        with pytest.raises(Killed):
            lake.replay("mine")
    left = [path for path in lake.path.iterdir() if path.name.startswith("replay-")]
    assert len(left) == 1
    assert lake.ids(lake.listed()) == lake.own(4)
    assert lake.orphans() == [], "it may be alive"
    lake.replay("another")
    assert lake.ids(lake.listed()) == lake.own(4) + IN_QUARANTINE
    assert lake.orphans() == [left[0].name]
    lake.remove_orphans()
    lake.land(5, 5)
    lake.next_driver()
    for names in (lake.listed(), lake.shown()):
        assert lake.ids(names) == lake.own(5) + IN_QUARANTINE


def test_a_replay_whose_ranges_another_has_taken_lists_nothing(
    lake: ReplayedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = lake.begun("mine")
    with monkeypatch.context() as patch:

        def overtaken(point: str, batch: int | None = None) -> None:
            patch.undo()
            lake.replay("another")

        patch.setattr(replaying, "reached", overtaken)
        outcome = former.run([KEY])
    assert outcome.landed == 0
    assert "is not held by this replay any more" in outcome.told[0]
    assert lake.ids(lake.listed()) == lake.own(4) + IN_QUARANTINE


def test_a_file_of_a_replay_that_is_gone_stops_the_next_driver_and_is_named(lake: ReplayedLake) -> None:
    lake.replay("mine")
    name = next(name for name in lake.listed() if name.startswith("replay-"))
    (lake.path / name).unlink()
    with pytest.raises(FilesLost, match=rf"{name}\), of replays\. Somebody deleted") as problem:
        lake.next_driver()
    assert problem.value.batches == (), "no range of a batch is in doubt"


def test_one_that_a_batch_has_taken_over_is_no_record_of_that_batch(lake: ReplayedLake) -> None:
    lake.replay("mine")
    lake.land(5, 5)
    name = next(name for name in lake.listed() if name.startswith("replay-"))
    (lake.path / name).unlink()
    with pytest.raises(FilesLost, match=rf"of replays \({name}\)") as problem:
        lake.next_driver()
    assert problem.value.batches == ()


def test_a_replay_of_columns_that_no_file_has_is_refused_before_anything_is_claimed(lake: ReplayedLake) -> None:
    with pytest.raises(Refused, match=r"would add columns that no file has yet: note \(string\)\. Leave them out"):
        lake.begun("mine", columns={"id": "long", "note": "string"})
    with pytest.raises(Refused, match="id was long and is string"):
        lake.begun("mine", columns={"id": "string"})


def test_where_nothing_has_landed_a_replay_has_the_columns_with_which_the_stream_was_started(tmp_path: Path) -> None:
    lake = empty_lake_at(tmp_path)
    with pytest.raises(
        Refused, match=r"columns of this replay: id \(string\)\. Replay with the stream's own transform"
    ):
        lake.begun("mine", columns={"id": "string"})
    lake.replay("mine")
    lake.land(1, 1)
    assert lake.ids(lake.shown()) == lake.own(1) + IN_QUARANTINE


def test_a_batch_takes_over_no_file_of_columns_that_readers_cannot_read_with_its_own(tmp_path: Path) -> None:
    lake = empty_lake_at(tmp_path)
    lake.rows = {"id": "string"}
    lake.next_driver()
    late = lake.begun("mine", columns={"id": "string"})
    lake.rows = COLUMNS
    lake.next_driver()
    assert late.run([KEY]).landed == 10
    for again in range(2):
        with pytest.raises(Refused, match=r"do not fit the Parquet files .* id was string and is long"):
            lake.land(1, 1) if not again else lake.next_driver()
        assert lake.batches() == {None}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"format": "Json"}, "format was 'Parquet' and is 'Json'"),
        ({"partitionBy": ["id"]}, r"partitionBy was \[\] and is \['id'\]"),
    ],
)
def test_a_replay_lands_nothing_where_the_resource_has_files_written_otherwise_than_those_that_landed(
    lake: ReplayedLake, changes: dict[str, Any], told: str
) -> None:
    sink = FilesSink(path=lake.folder.sink.path, **changes)
    folder = PreparedFolderOfReplay(sink, lake.store, lake.ledger, STREAM, _columns=dict(COLUMNS))
    with pytest.raises(PathOfAnother, match=f"were written otherwise: {told}"):
        folder.with_writer(Writer(lake), "mine")


def test_a_replay_lands_nothing_where_the_ledger_is_behind_what_readers_are_shown(tmp_path: Path) -> None:
    database = MemoryDatabase()
    folder = FILES.folder(FilesSink(path=str(tmp_path / "lake")), {})
    lake = ReplayedLake(folder, MemoryLedger(database))
    lake.land(1, 4)
    lake.quarantine()
    before = database.tables.copy()
    lake.replay("mine")
    lake.land(5, 5)
    database.restore(before)
    with pytest.raises(LogUnfit, match="names files up to batch 5, and the ledger ends with batch 4"):
        lake.begun("another")


def test_a_stream_that_the_ledger_does_not_know_is_to_be_started_first(tmp_path: Path) -> None:
    folder = FILES.folder(FilesSink(path=str(tmp_path)), {})
    prepared = PreparedFolderOfReplay(folder.sink, folder.store, MemoryLedger(MemoryDatabase()), STREAM)
    with pytest.raises(NothingToReplayInto, match="start the stream first"):
        prepared.with_writer(Writer(None), "mine")  # type: ignore[arg-type]


def test_ranges_given_by_hand_need_a_ledger_that_records_from_where_a_stream_was_set_back(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="its ledger is an object log, which does not record the positions"):
        look_at(lake_at(tmp_path, "object log").ledger, STREAM)


def test_files_take_no_backfill() -> None:
    spec = parse_stream(document({"spec.sink": {"files": {"path": "/lake"}}}), "the test").spec
    with pytest.raises(BackfillRefused, match=r"spec\.sink\.files takes no backfill into another table"):
        into_table(spec, "other")


def test_a_batch_that_takes_over_files_of_other_columns_says_so_of_each() -> None:
    file = DataFile("replay-a-part-0.parquet", 4, 1, 1)
    given = {name: Manifest(BatchNumber(0), 1, (file,), name).to_json() for name in ("same", "other")}
    taken = with_replayed(Manifest(BatchNumber(7), 0, (), "same"), replayed_manifests(given))
    assert [it.schema for it in taken.files] == [None, "other"]
    assert taken.rows == 2
    assert Manifest.from_json(taken.batch, taken.to_json()) == taken


def test_a_name_of_a_replays_file_tells_its_life_and_its_replay_and_no_batch() -> None:
    name = f"{ReplayWrite.draw('0123456789abcdef', 'token', BatchNumber(3)).name}-part-0.parquet"
    found = ReplayWrite.of_path(f"day=1/{name}", ("day",))
    assert found is not None
    assert found.replay == digest_of("token")
    assert life_of(name) == "0123456789abcdef"
    assert Write.of_path(f"day=1/{name}", ("day",)) is None
    assert ReplayWrite.of_path(f"hour=1/{name}", ("day",)) is None
    assert "token" not in name


def test_where_the_ledger_is_lost_files_of_replays_tell_no_positions_and_those_that_nobody_was_shown_are_named() -> (
    None
):
    of_batch = "1-4-0123456789abcdef-0123456789abcdef-part-0.parquet"
    replayed = f"{ReplayWrite.draw('0123456789abcdef', 'token', BatchNumber(3)).name}-part-0.parquet"
    listed = [of_batch, replayed]
    shown = {address_of(path, "/lake") for path in listed}
    assert set(counted_files(listed, shown, "/lake", (), BatchNumber(5))) == {of_batch}
    with pytest.raises(PositionsUnclear, match="were written by a replay, and were not shown"):
        counted_files(listed, {address_of(of_batch, "/lake")}, "/lake", (), BatchNumber(5))
