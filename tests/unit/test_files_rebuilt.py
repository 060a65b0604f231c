"""Where a stream stood by the rows of its files: which files count, and when they do not tell."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.files.columns import OFFSET, ORIGIN, PARTITION
from exactlyonce.connectors.files.manifest import WRITING, Author, Write
from exactlyonce.connectors.files.parquet import spans_in
from exactlyonce.connectors.files.rebuilt import PositionsUnclear, counted_files, last_positions
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition
from exactlyonce.positions.spans import PositionSpan
from exactlyonce.sink.files import Rebuilt

LIFE = 16 * "a"


def path_of(batch: int, attempt: int = 0) -> str:
    return f"{Write(Author(Epoch(1), LIFE), BatchNumber(batch), f'{attempt:016x}').name}-part-0.parquet"


def uri(path: str) -> str:
    return f"file:///lake/{path}"


def counted(listed: list[str], shown: list[str], latest: int | None) -> set[str]:
    found = counted_files(
        listed, {uri(path) for path in shown}, "/lake", (), None if latest is None else BatchNumber(latest)
    )
    return set(found)


def last(*files: tuple[int, str, list[PositionSpan]]) -> tuple[Rebuilt, ...]:
    return last_positions((BatchNumber(batch), path, spans) for batch, path, spans in files)


def span(first: int, last: int, partition: int = 0) -> PositionSpan:
    return PositionSpan("orders", partition, first, last)


def test_a_file_counts_if_readers_are_shown_it_and_an_attempt_at_a_batch_that_is_shown_does_not() -> None:
    listed = [path_of(1), path_of(1, attempt=7), path_of(2), f".{path_of(2)}.crc", "_spark_metadata/2"]
    assert counted(listed, [path_of(1), path_of(2)], latest=2) == {path_of(1), path_of(2)}


def test_what_is_still_where_attempts_write_has_not_landed() -> None:
    writing = f"{WRITING}/{path_of(2).removesuffix('-part-0.parquet')}/part-0.parquet"
    assert counted([path_of(1), writing], [path_of(1)], latest=1) == {path_of(1)}


@pytest.mark.parametrize("latest", [None, 1])
def test_a_file_in_place_of_a_later_batch_may_have_landed_and_is_named(latest: int | None) -> None:
    shown = [] if latest is None else [path_of(1)]
    with pytest.raises(PositionsUnclear, match=f"/lake/{path_of(2)} may have landed without being shown"):
        counted([*shown, path_of(2)], shown, latest)


def test_a_file_that_readers_are_shown_and_that_is_gone_or_of_another_writer_is_named() -> None:
    with pytest.raises(PositionsUnclear, match=f"{uri(path_of(1))}, which readers are shown, is missing"):
        counted([], [path_of(1)], latest=1)
    with pytest.raises(PositionsUnclear, match=r"other\.parquet, which readers are shown, was not written by a stream"):
        counted(["other.parquet"], ["other.parquet"], latest=1)


def test_each_partition_goes_on_behind_its_last_row_whichever_file_holds_it() -> None:
    assert last((1, "a", [span(0, 4), span(0, 2, 1)]), (2, "b", [span(5, 6)]), (2, "c", [span(7, 9)])) == (
        Rebuilt(Partition("orders", 0), 9, "c"),
        Rebuilt(Partition("orders", 1), 2, "a"),
    )


def test_a_merged_file_may_begin_before_a_file_of_an_earlier_batch() -> None:
    assert last((3, "small", [span(5, 6)]), (5, "merged", [span(0, 9)]))[0].last == 9


def test_a_later_batch_that_stands_before_an_earlier_one_tells_that_the_positions_are_of_two_lives() -> None:
    with pytest.raises(
        PositionsUnclear, match=r"orders-0 went back: a of batch 1 has it up to 9, and b of batch 2 up to 3"
    ):
        last((1, "a", [span(0, 9)]), (2, "b", [span(0, 3)]))


def test_a_merged_file_whose_latest_batch_has_no_row_of_a_partition_is_not_told_as_two_lives_for_certain() -> None:
    with pytest.raises(PositionsUnclear, match=r"or b is a merged file, whose rows of orders-0 are of earlier batches"):
        last((3, "a", [span(5, 9)]), (5, "b", [span(0, 4), span(0, 7, 1)]))


def test_a_file_without_positions_is_named() -> None:
    with pytest.raises(PositionsUnclear, match="The rows of a carry no source positions"):
        last((1, "a", []))


def test_rows_of_several_partitions_in_one_row_group_are_told_apart_by_the_rows_themselves(tmp_path: Path) -> None:
    rows = {ORIGIN: 4 * ["orders"], PARTITION: [1, 0, 1, 0], OFFSET: [3, 12, 8, 2]}
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "mixed.parquet")
    pyarrow.parquet.write_table(pa.table({"id": [1]}), tmp_path / "without.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    store = LocalLogStore(str(tmp_path))
    assert set(spans_in(store, "/lake", "mixed.parquet")) == {span(2, 12), span(3, 8, 1)}
    assert spans_in(store, "/lake", "without.parquet") == ()
    with pytest.raises(PositionsUnclear, match=r"The positions in /lake/torn.parquet cannot be read"):
        spans_in(store, "/lake", "torn.parquet")
