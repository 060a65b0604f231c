"""A folder as it is seen from outside: nobody but its driver opens it, so nothing is asked and nothing is claimed."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactlyonce.assembly import LedgerKey, SourceKey
from exactlyonce.connectors.files.connector import SOURCE
from exactlyonce.connectors.files.source_bounds import RowsTellNoFiles
from exactlyonce.connectors.files.source_position import NOTHING_READ, after, to_text
from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce.ledger.connector import Landed
from exactlyonce.monitor.gathering import Watched, query_source
from exactlyonce.monitor.lag import PartitionState
from exactlyonce.monitor.snapshot import after_ledger
from exactlyonce.monitor.targets import StreamKey, Target
from exactlyonce.positions.ranges import PARTITION_END, BatchNumber, OffsetRange, Partition, Ranges
from tests.folder_in_memory import source_file

SPEC = FilesSource.model_validate({"path": "file:///no/such/folder", "maxFilesPerTrigger": 7})
FOLDER = Partition("/no/such/folder", 0)
READ = after(NOTHING_READ, [source_file("a"), source_file("b")])


def test_a_stream_starts_in_front_of_the_first_file_and_is_never_told_that_anything_is_missing() -> None:
    assert not Path(SPEC.folder).exists()
    source = SOURCE.address(SPEC, {}).open()
    view = source.view()

    assert view.selected == {FOLDER}
    assert source.start(view) == {FOLDER: NOTHING_READ}
    assert source.start(view, frozenset()) == {}
    later = source.view(frozenset({FOLDER, Partition("/former", 0)}), {FOLDER: 1}, {FOLDER: READ})
    assert later.bounds[FOLDER].earliest <= READ <= later.bounds[FOLDER].latest
    assert Partition("/former", 0) in later.bounds
    assert (later.missing, later.records) == ((), {})
    now = source.now([FOLDER])
    assert (now.earliest[FOLDER], now.origin_ids) == (NOTHING_READ, view.origin_ids)
    assert source.request_leader_epochs([FOLDER])() == now.leader_epochs
    ranges = Ranges({FOLDER: OffsetRange(NOTHING_READ, READ)})
    assert source.last_records(ranges).result() == {}
    assert source.last_records(ranges).without_records == {FOLDER}


def test_the_monitor_claims_neither_a_lag_nor_that_the_source_is_down() -> None:
    address = SOURCE.address(SPEC, {})
    server = SourceKey("files", address.key, address.shown)
    watched = Watched(Target(StreamKey("shop", "orders"), "shop/orders", SPEC, server, LedgerKey("", (), ""), ""))
    watched.learn(lambda known: after_ledger(known, Landed(BatchNumber(7), 1.0, BatchNumber(7), {FOLDER: READ})))

    assert query_source(SOURCE.fleet(address.key), [watched]) is None

    assert watched.snapshot.source_up
    assert watched.snapshot.partitions[FOLDER].bounds.latest == PARTITION_END
    assert watched.snapshot.partitions[FOLDER].state is PartitionState.UNKNOWN
    lag = watched.snapshot.lag(2.0)
    assert lag is None or (lag.records, lag.oldest_timestamp) == (None, None)


def test_a_batch_is_halved_by_its_files_and_positions_are_told_in_words() -> None:
    ranges = Ranges({FOLDER: OffsetRange(NOTHING_READ, READ)})

    assert SPEC.most_records(ranges) == 2
    assert SPEC.position_text(READ) == to_text(READ)
    assert SPEC.batch_limit(None) == "7 files or 1073741824 bytes"
    assert SPEC.selected({})[0] == {FOLDER}


def test_rows_do_not_tell_where_a_stream_continues() -> None:
    with pytest.raises(RowsTellNoFiles, match="move the files that have landed out of the folder"):
        SOURCE.address(SPEC, {}).start_behind({FOLDER: READ})
