"""`_spark_metadata`: that it is what Spark itself writes, and that it follows the ledger whoever writes it, however often."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.files.manifest import DataFile, Manifest
from exactlyonce.connectors.files.spark_log import (
    FOLDER,
    LogUnfit,
    batch_of,
    is_compaction,
    name_of,
    parse,
    require_not_ahead,
)
from exactlyonce.connectors.files.spark_metadata import CLEANUP_DELAY_SECONDS, SparkMetadata
from exactlyonce.positions.ranges import BatchNumber

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "file_sink"
RECORDED = {path.name: path.read_bytes() for path in GOLDEN.iterdir() if path.name != "README.md"}
OUTPUT = "file:///output"


class Killed(BaseException):
    """The process ended here."""


def file_from(line: str) -> DataFile:
    found = json.loads(line)
    path = unquote(urlparse(found["path"]).path).removeprefix("/output/")
    return DataFile(path, found["size"], found["modificationTime"])


def recorded_manifests() -> dict[BatchNumber, Manifest]:
    """The batches of the golden log; of a compacted one the last line is its own."""
    found: dict[BatchNumber, Manifest] = {}
    for name, content in RECORDED.items():
        batch = batch_of(name)
        assert batch is not None
        found[batch] = Manifest(batch, 1, (file_from(parse(name, content)[-1]),), "schema")
    return dict(sorted(found.items()))


def batches(*numbers: int) -> dict[BatchNumber, Manifest]:
    return {
        BatchNumber(number): Manifest(BatchNumber(number), 1, (DataFile(f"data/{number}", 1, number),), "schema")
        for number in numbers
    }


def visible(store: LocalLogStore) -> list[str]:
    """The paths that Spark reads, by the rules of CompactibleFileStreamLog.allFiles: from the latest compaction on, no gap."""
    held = {batch: entry.name for entry in store.list(FOLDER) if (batch := batch_of(entry.name)) is not None}
    latest = max(held)
    first = max(0, (latest + 1) // 10 * 10 - 1)
    lines = [
        line
        for batch in range(first, latest + 1)
        for line in parse(held[BatchNumber(batch)], _entry(store, held, batch))
    ]
    return [json.loads(line)["path"].rsplit("/", 1)[1] for line in lines]


def _entry(store: LocalLogStore, held: Mapping[BatchNumber, str], batch: int) -> bytes:
    return store.read(f"{FOLDER}/{held[BatchNumber(batch)]}")


def test_the_log_is_byte_for_byte_what_sparks_own_file_sink_writes(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path))
    SparkMetadata(store, OUTPUT).publish(recorded_manifests())
    written = {entry.name: store.read(f"{FOLDER}/{entry.name}") for entry in store.list(FOLDER)}
    assert written == RECORDED


def test_compactions_are_named_as_spark_names_them() -> None:
    assert [name for name in sorted(RECORDED) if name.endswith(".compact")] == ["19.compact", "9.compact"]
    assert {name_of(batch) for batch in range(22)} == set(RECORDED)


def test_the_log_may_begin_at_any_batch_and_has_no_gap(tmp_path: Path) -> None:
    """The seed of a generation takes a number and lands no rows."""
    for first in (1, 8, 9, 10, 4007):
        store = LocalLogStore(str(tmp_path / str(first)))
        SparkMetadata(store, OUTPUT).publish(batches(first, first + 3, first + 14))
        assert visible(store) == [str(first), str(first + 3), str(first + 14)]


@pytest.mark.parametrize("point", ["publish.prepared", "publish.created"])
@pytest.mark.parametrize("dies_at", range(1, 23))
def test_a_process_that_dies_anywhere_is_finished_by_the_next(tmp_path: Path, point: str, dies_at: int) -> None:
    def dies(reached: str, batch: int) -> None:
        if (reached, batch) == (point, dies_at):
            raise Killed

    store = LocalLogStore(str(tmp_path))
    landed = batches(*range(1, 23))
    with pytest.raises(Killed):
        SparkMetadata(store, OUTPUT, dies).publish(landed)
    SparkMetadata(store, OUTPUT).publish(landed)
    assert visible(store) == [str(number) for number in range(1, 23)]


def test_two_processes_write_the_same_bytes_and_neither_fails(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path))
    other = SparkMetadata(store, OUTPUT)
    landed = batches(*range(1, 13))

    def overtaken(point: str, batch: int) -> None:
        if (point, batch) == ("publish.prepared", 9):
            other.publish(landed)

    SparkMetadata(store, OUTPUT, overtaken).publish(landed)
    assert visible(store) == [str(number) for number in range(1, 13)]


def test_an_entry_with_other_files_is_another_querys(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path))
    other = SparkMetadata(store, OUTPUT)
    strangers = {BatchNumber(2): Manifest(BatchNumber(2), 1, (DataFile("data/strange", 1, 2),), "schema")}

    def overtaken(point: str, batch: int) -> None:
        if (point, batch) == ("publish.prepared", 1):
            other.publish(strangers)

    with pytest.raises(LogUnfit, match=r"holds other files than batch \d in the ledger: another query"):
        SparkMetadata(store, OUTPUT, overtaken).publish(batches(1, 2))


def test_a_log_that_knows_more_than_the_ledger_is_not_continued() -> None:
    require_not_ahead(BatchNumber(4), BatchNumber(4))
    require_not_ahead(None, None)
    with pytest.raises(
        LogUnfit, match=r"up to batch 4, and the ledger ends with batch 3: .* remove the entries after 3"
    ):
        require_not_ahead(BatchNumber(4), BatchNumber(3))
    with pytest.raises(
        LogUnfit, match=r"and the ledger holds no batch that has landed: .* remove all entries from"
    ) as found:
        require_not_ahead(BatchNumber(4), None)
    assert "None" not in str(found.value)


def test_nobody_is_told_to_remove_entries_that_name_the_files_of_a_former_query() -> None:
    with pytest.raises(LogUnfit, match="Use another path, or restore the ledger of a later moment") as found:
        require_not_ahead(BatchNumber(19), BatchNumber(13), has_former=True)
    assert "remove" not in str(found.value)


def test_a_missing_entry_is_named_when_the_log_is_put_together(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path))
    SparkMetadata(store, OUTPUT).publish(batches(*range(1, 9)))
    store.remove(f"{FOLDER}/5")
    with pytest.raises(LogUnfit, match=r"_spark_metadata/5 is missing"):
        SparkMetadata(store, OUTPUT).publish(batches(9))


def test_what_a_compaction_has_taken_in_goes_once_no_reader_needs_it(tmp_path: Path) -> None:
    now = 0.0
    store = LocalLogStore(str(tmp_path))
    log = SparkMetadata(store, OUTPUT, clock=lambda: now)
    log.publish(batches(*range(25)))
    assert len(store.list(FOLDER)) == 25, "a reader that began a moment ago may need each of them"
    now += CLEANUP_DELAY_SECONDS
    log.publish(batches(25))
    kept = {batch_of(entry.name) for entry in store.list(FOLDER)}
    assert kept == set(range(9, 26)), "the compaction before the latest and all that came after it stay"
    assert visible(store) == [str(number) for number in range(26)]
    log.publish(batches(*range(26, 41)))
    assert visible(store) == [str(number) for number in range(41)]
    assert is_compaction(39)


@pytest.mark.parametrize("deleted", range(9))
def test_a_process_that_dies_while_it_removes_old_entries_leaves_a_log_that_readers_and_the_next_one_can_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: int
) -> None:
    now = 0.0
    store = LocalLogStore(str(tmp_path))
    log = SparkMetadata(store, OUTPUT, clock=lambda: now)
    log.publish(batches(*range(25)))
    now += CLEANUP_DELAY_SECONDS

    def dies(paths: Sequence[str]) -> None:
        LocalLogStore(str(tmp_path)).delete(paths[:deleted])
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(store, "delete", dies)
        with pytest.raises(Killed):
            log.publish(batches(25))
    assert len(store.list(FOLDER)) == 26 - deleted
    assert visible(store) == [str(number) for number in range(26)]
    successor = SparkMetadata(store, OUTPUT, clock=lambda: now)
    successor.recover(batches(*range(26)), BatchNumber(25))
    successor.publish(batches(*range(26, 30)))
    now += CLEANUP_DELAY_SECONDS
    successor.publish(batches(30))
    assert visible(store) == [str(number) for number in range(31)]
    assert {batch_of(entry.name) for entry in store.list(FOLDER)} == set(range(19, 31)), "the rest is gone, too"


@pytest.mark.parametrize(("landed", "entries"), [(0, {0}), (9, {9}), (4007, set(range(3999, 4008)))])
def test_a_log_is_begun_before_anything_is_written_so_that_readers_never_take_files_by_their_folder(
    tmp_path: Path, landed: int, entries: set[int]
) -> None:
    """Spark reads a folder without `_spark_metadata` by what is in it: files of attempts that died would count."""
    store = LocalLogStore(str(tmp_path))
    for _ in range(2):
        SparkMetadata(store, OUTPUT).recover({}, BatchNumber(landed))
        assert {batch_of(entry.name) for entry in store.list(FOLDER)} == entries
        assert visible(store) == []
    SparkMetadata(store, OUTPUT).recover(batches(landed + 1), BatchNumber(landed + 1))
    assert visible(store) == [str(landed + 1)]
    SparkMetadata(store, OUTPUT).recover(batches(landed + 1), BatchNumber(landed + 7))
    assert max(batch_of(entry.name) or 0 for entry in store.list(FOLDER)) == landed + 1, "a seed of a later generation"


def test_paths_are_escaped_as_uris(tmp_path: Path) -> None:
    """Spark escapes values of partition columns in names of folders; the percent sign is then escaped again."""
    store = LocalLogStore(str(tmp_path))
    file = DataFile("data/day=a%2Fb c/1-1-0123456789abcdef-0.parquet", 1, 1)
    SparkMetadata(store, "/my output").publish({BatchNumber(0): Manifest(BatchNumber(0), 1, (file,), "schema")})
    assert b'"file:///my%20output/data/day=a%252Fb%20c/1-1-0123456789abcdef-0.parquet"' in store.read(f"{FOLDER}/0")
