"""A folder that a query of Spark's own file sink has written: taken by a stream as the resource says it, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.files.connector import FilesFolder
from exactlyonce.connectors.files.former_output import OutputUnfit, former_files, is_part_file, require_numbered_behind
from exactlyonce.connectors.files.manifest import MARKER, Author
from exactlyonce.connectors.files.orphans import orphans
from exactlyonce.connectors.files.shown import latest_shown
from exactlyonce.connectors.files.spark_log import LogUnfit, is_compaction, name_of, render
from exactlyonce.connectors.files.spec import FilesSink, ManifestKind
from exactlyonce.connectors.files.tenancy import PathOfAnother, Tenant, take_place
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.files.former_columns import columns_in

LATEST = 11
TENANT = Tenant("shop/orders", "ledger-1", "Parquet", ("day",), "SparkMetadata", LATEST)
PART = "part-00000-{:08x}-0000-4000-8000-000000000000-c000.snappy.parquet"


def part(number: int) -> str:
    return f"day={number % 2}/{PART.format(number)}"


def line(folder: Path, path: str, size: int, **changes: Any) -> str:
    status = {"path": f"file://{folder}/{path}", "size": size, "isDir": False, "modificationTime": 1, "action": "add"}
    return json.dumps({**status, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve batches of a file each, the log of which was put together with the tenth."""
    home = tmp_path / "out"
    (home / "_spark_metadata").mkdir(parents=True)
    lines: list[str] = []
    for number in range(LATEST + 1):
        path = home / part(number)
        path.parent.mkdir(exist_ok=True)
        path.write_text("x" * (number + 1))
        lines.append(line(home, part(number), number + 1))
        entry = lines if is_compaction(number) else lines[-1:]
        (home / "_spark_metadata" / name_of(number)).write_bytes(render(entry))
    return home


def store_of(folder: Path) -> LocalLogStore:
    return LocalLogStore(str(folder))


def test_a_stream_takes_the_folder_once_and_its_files_stay_those_that_readers_are_shown(folder: Path) -> None:
    for _ in range(2):
        take_place(store_of(folder), TENANT)
    found = former_files(store_of(folder), BatchNumber(LATEST))
    assert [(file.path, file.size_bytes) for file in found] == [(part(it), it + 1) for it in range(LATEST + 1)]
    assert Tenant.parsed((folder / MARKER).read_bytes()) == TENANT


def test_a_stream_that_has_taken_the_folder_does_not_look_again_at_what_it_has_added_to(folder: Path) -> None:
    take_place(store_of(folder), TENANT)
    (folder / "_spark_metadata" / "12").write_bytes(render([]))
    take_place(store_of(folder), TENANT)


def entry(folder: Path, name: str, content: bytes) -> None:
    (folder / "_spark_metadata" / name).write_bytes(content)


def marked(folder: Path) -> None:
    (folder / MARKER).parent.mkdir(parents=True)
    (folder / MARKER).write_text("{}")


def elsewhere(folder: Path) -> None:
    entry(folder, "11", render([line(Path("/of/another"), part(11), 12)]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda it: entry(it, "12", render([])),
            "ends with batch 12, and continueAfterBatch says 11. If the query is still",
        ),
        (lambda it: (it / "_spark_metadata" / "11").unlink(), "ends with batch 10, and continueAfterBatch says 11"),
        (lambda it: (it / "_spark_metadata" / "10").unlink(), "_spark_metadata/10 is missing"),
        (lambda it: (it / "_spark_metadata" / "9.compact").unlink(), "_spark_metadata/9.compact is missing"),
        (lambda it: entry(it, "10", b"v1\n{"), "_spark_metadata/10 has a line that names no file, so it is torn"),
        (lambda it: entry(it, "10", b"v2\n"), "_spark_metadata/10 begins with 'v2'"),
        (lambda it: entry(it, "6.compact", render([])), r"other batches than every tenth \(6.compact\)"),
        (lambda it: marked(it / "day=0" / "inside"), r"is the folder of another stream \(day=0/inside\)"),
        (lambda it: (it / part(3)).unlink(), "day=1/part-00000-00000003.* is missing or has another size than 4 bytes"),
        (lambda it: (it / part(3)).write_text("xx"), "is missing or has another size than 4 bytes"),
        (elsewhere, "_spark_metadata/11 names file:///of/another/day=1/part.*, which is elsewhere"),
        (
            lambda it: entry(it, "11", render([line(it, part(11), 12, action="delete")])),
            "_spark_metadata/11 deletes file:",
        ),
    ],
)
def test_an_output_that_is_not_as_the_resource_says_is_refused_and_left_as_it_was(
    folder: Path, change: Callable[[Path], object], words: str
) -> None:
    change(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises((OutputUnfit, LogUnfit), match=words):
        take_place(store_of(folder), TENANT)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_an_output_of_another_format_is_refused(folder: Path) -> None:
    with pytest.raises(
        OutputUnfit, match=r"snappy\.parquet is no Json file by its name.* set format to what the query"
    ):
        take_place(store_of(folder), replace(TENANT, format="Json"))


def test_a_former_file_that_is_damaged_is_named(folder: Path) -> None:
    with pytest.raises(
        OutputUnfit, match=f"{part(3)}, which a former query has written, is not a Parquet file that can be"
    ):
        columns_in(store_of(folder), part(3))


@pytest.mark.parametrize("partition_by", [(), ("hour",), ("day", "hour")])
def test_an_output_of_other_partitions_is_refused(folder: Path, partition_by: tuple[str, ...]) -> None:
    with pytest.raises(OutputUnfit, match=r"is partitioned by \['day'\], and partitionBy says"):
        take_place(store_of(folder), replace(TENANT, partition_by=partition_by))


def test_a_folder_without_a_log_has_nothing_to_continue(tmp_path: Path) -> None:
    with pytest.raises(OutputUnfit, match="there is nothing that continueAfterBatch could continue"):
        take_place(store_of(tmp_path), TENANT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("former", "landed"), [(None, None), (None, 3), (11, None), (11, 11), (11, 12)])
def test_a_stream_whose_numbers_are_above_those_of_the_query_may_continue(
    former: int | None, landed: int | None
) -> None:
    require_numbered_behind(former, None if landed is None else BatchNumber(landed), "/lake")


def test_a_stream_that_was_started_with_an_earlier_number_has_to_start_over() -> None:
    with pytest.raises(
        OutputUnfit, match=r"has numbered its batches up to 10, .* Start it over: annotate it with exactlyonce"
    ):
        require_numbered_behind(11, BatchNumber(10), "/lake")


def test_without_the_setting_the_refusal_names_it(folder: Path) -> None:
    with pytest.raises(
        PathOfAnother, match=r"if that query has ended for good, continue its output with continueAfterBatch\."
    ):
        take_place(store_of(folder), replace(TENANT, former_batch=None))


@pytest.mark.parametrize(("was", "now"), [(LATEST, None), (None, LATEST), (LATEST, 12)])
def test_a_batch_that_is_named_later_or_changed_is_refused(folder: Path, was: int | None, now: int | None) -> None:
    home = folder if was is not None else folder.parent / "empty"
    take_place(store_of(home), replace(TENANT, former_batch=was))
    with pytest.raises(PathOfAnother, match=f"continueAfterBatch was {was} and is {now}"):
        take_place(store_of(home), replace(TENANT, former_batch=now))


def test_of_two_drivers_of_one_stream_the_later_one_finds_the_folder_taken(folder: Path) -> None:
    """The first takes the folder and adds its first entry between the other's look for the marker and its look at the log."""

    class Overtaken(LocalLogStore):
        looked = False

        def list(self, folder: str) -> Any:
            if not self.looked:
                self.looked = True
                take_place(store_of(Path(self.location)), TENANT)
                entry(Path(self.location), "12", render([]))
            return super().list(folder)

    take_place(Overtaken(str(folder)), TENANT)


def test_part_files_of_no_entry_are_orphans_and_those_of_the_former_query_never_are(folder: Path) -> None:
    left = folder / "day=0" / PART.format(99)
    left.write_text("never shown")
    left.with_name(f".{left.name}.crc").write_text("its checksum")
    (folder / "day=0" / "of-a-person.parquet").write_text("not Spark's")
    listed = {path.relative_to(folder).as_posix(): 1 for path in folder.rglob("*") if path.is_file()}
    kept = [file.path for file in former_files(store_of(folder), latest_shown(store_of(folder)))]
    author = Author(Epoch(1), "0123456789abcdef")
    found = orphans(listed, ("day",), kept, author, BatchNumber(12), has_former=True)
    assert [orphan.path for orphan in found] == [f"day=0/.{left.name}.crc", f"day=0/{left.name}"]
    assert orphans(listed, ("day",), kept, author, BatchNumber(12)) == ()


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        (part(1), True),
        (PART.format(1), False),
        (f"hour=1/{PART.format(1)}", False),
        (f"_exactlyonce/{PART.format(1)}", False),
        ("day=1/part-1.parquet", False),
    ],
)
def test_a_part_file_is_known_by_the_name_that_spark_gives_it_in_its_place(path: str, is_one: bool) -> None:
    assert is_part_file(path, ("day",)) is is_one


def test_the_files_of_the_former_query_are_listed_for_readers_without_spark(folder: Path) -> None:
    sink = FilesSink(path=str(folder), partition_by=("day",), continue_after_batch=LATEST)
    found = FilesFolder(sink, store_of(folder)).former()
    assert [(file.address, file.batch, file.rows) for file in found] == [
        (f"{folder}/{part(number)}", None, None) for number in range(LATEST + 1)
    ]
    assert FilesFolder(sink.model_copy(update={"continue_after_batch": None}), store_of(folder)).former() == ()


@pytest.mark.parametrize("change", [{"manifest": ManifestKind.NONE}, {"include_positions": True}])
def test_what_the_former_rows_do_not_have_cannot_be_asked_for_beside_them(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="continueAfterBatch needs manifest: SparkMetadata"):
        FilesSink(path="/lake", continue_after_batch=LATEST, **change)
