"""Write the rows of several Parquet files into one, and prove by its footer that it holds what they held; and read positions.

pyarrow is needed for nothing else outside of drivers: it is imported when files are merged, and an extra of the package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from exactlyonce.bounded_text import one_line
from exactlyonce.checkpoint.scratch import needing_room, scratch_folder
from exactlyonce.checkpoint.store import BulkStore, FileMissing
from exactlyonce.connectors.files.columns import OFFSET, ORIGIN, PARTITION
from exactlyonce.connectors.files.compaction_plan import MergeUnfit
from exactlyonce.connectors.files.manifest import DataFile
from exactlyonce.connectors.files.parquet_source import Source, leaves_of, require_alike
from exactlyonce.connectors.files.rebuilt import PositionsUnclear
from exactlyonce.connectors.files.tenancy import FilesLost
from exactlyonce.errors import Refused
from exactlyonce.positions.spans import PositionSpan

_GROUP_BYTES = 64 << 20
"""So many bytes, as they are in memory, become a row group: what is held of a merged file while it is written."""

_POSITION = [ORIGIN, PARTITION, OFFSET]

_Place = tuple[str, int | str] | None


class PyarrowMissing(Refused):
    """pyarrow, which reads and merges files, is not installed."""


class ParquetMerger:
    """A `Merger` of the Parquet files of one folder."""

    def __init__(self, store: BulkStore, location: str) -> None:
        self._store = store
        self._location = location
        self._parquet = _pyarrow_parquet()

    def merge(self, files: Sequence[DataFile], path: str, now_milliseconds: int) -> DataFile:
        """Write the file at `path`, which nobody else writes, and return what its footer says of it.

        Raises:
            FilesLost: if a file is missing or has another size.
            MergeUnfit: if the merged file would have other rows, types or positions.
            FileUnreadable: which is a MergeUnfit, if a file is damaged.
            ScratchFull: if this machine has no room for the files.
        """
        with scratch_folder() as scratch, ExitStack() as stack:
            merged = scratch / "merged.parquet"
            sources = [self._source(stack, file) for file in files]
            for source in sources:
                require_alike(sources[0], source)
            with_spans = all(file.spans for file in files)
            with needing_room():
                self._write(sources, merged, with_spans=with_spans)
            with self._parquet.ParquetFile(merged) as written:
                self._require_equal(files, sources, written)
                spans = spans_of(written.metadata) if with_spans else ()
                if spans != united(files if with_spans else ()):
                    raise self._unfit(files, "its footer tells other source positions than theirs")
                rows = written.metadata.num_rows
            self._store.put(merged, path)
            return DataFile(path, merged.stat().st_size, now_milliseconds, rows, spans)

    def _source(self, stack: ExitStack, file: DataFile) -> Source:
        try:
            place = stack.enter_context(self._store.fetched(file.path))
        except FileMissing:
            place = None
        if place is None or place.stat().st_size != file.size_bytes:
            raise FilesLost(
                f"{self._location}/{file.path}, which has landed, is missing or has another size: somebody deleted or replaced "
                "it. Restore it; nothing was changed."
            )
        return Source.of(place, f"{self._location}/{file.path}")

    def _write(self, sources: Sequence[Source], merged: Path, *, with_spans: bool) -> None:
        """Write row groups of rows of one source partition each, where positions are known: statistics then tell them."""
        groups = [
            (_place_of(source.footer.row_group(number)) if with_spans else None, source, number)
            for source in sources
            for number in range(source.footer.num_row_groups)
        ]
        groups.sort(key=lambda group: str(group[0]))
        first = sources[0]
        writer = self._parquet.ParquetWriter(
            merged,
            first.schema,
            compression=first.codec,
            use_deprecated_int96_timestamps=any(leaf[1] == "INT96" for leaf in first.leaves),
            store_decimal_as_integer=True,
            store_schema=False,
        )
        with writer:
            # Spark's own description of the columns, by which it tells types that Parquet does not.
            writer.add_key_value_metadata(first.described)
            for _, of_place in groupby(groups, key=lambda group: group[0]):
                for tables in _gathered(source.read(number) for _, source, number in of_place):
                    together = self._concatenated(tables)
                    writer.write_table(together, row_group_size=max(1, together.num_rows))

    def _concatenated(self, tables: Sequence[Any]) -> Any:
        import pyarrow

        return pyarrow.concat_tables(tables).combine_chunks()

    def _require_equal(self, files: Sequence[DataFile], sources: Sequence[Source], written: Any) -> None:
        if any(source.leaves != leaves_of(written) for source in sources):
            raise self._unfit(files, "its columns would have other Parquet types than theirs")
        expected = [sum(file.rows or 0 for file in files), sum(source.footer.num_rows for source in sources)]
        if [written.metadata.num_rows] * 2 != expected:
            raise self._unfit(files, f"it holds {written.metadata.num_rows} rows, and they {expected[0]}")

    def _unfit(self, files: Sequence[DataFile], why: str) -> MergeUnfit:
        return MergeUnfit(
            f"{len(files)} files from {self._location}/{files[0].path} on cannot become one: {why}. They stay as they are, and "
            "readers count them as before."
        )


def footer_of(place: Path) -> Any:
    """Return the footer of a file on this machine, as pyarrow has it."""
    return _pyarrow_parquet().read_metadata(place)


def united(files: Iterable[DataFile]) -> tuple[PositionSpan, ...]:
    """Return the span of each source partition over all of these files."""
    return united_spans(file.spans for file in files)


def united_spans(spans: Iterable[Iterable[PositionSpan]]) -> tuple[PositionSpan, ...]:
    """Return the span of each source partition over all of these."""
    found: dict[tuple[str, int | str], tuple[int, int]] = {}
    for span in chain.from_iterable(spans):
        key = (span.origin, span.partition)
        first, last = found.get(key, (span.first, span.last))
        found[key] = min(first, span.first), max(last, span.last)
    return _told(found)


def _told(found: dict[tuple[str, int | str], tuple[int, int]]) -> tuple[PositionSpan, ...]:
    return tuple(PositionSpan(*key, *bounds) for key, bounds in sorted(found.items(), key=lambda item: str(item[0])))


def spans_in(store: BulkStore, location: str, path: str) -> tuple[PositionSpan, ...]:
    """Return the span of each source partition in a file; none where its rows carry no positions.

    Raises:
        PositionsUnclear: if the file cannot be read.
        ScratchFull: if this machine has no room for it.
    """
    parquet = _pyarrow_parquet()
    import pyarrow

    with store.fetched(path) as place:
        try:
            with parquet.ParquetFile(place) as file:
                return _told_by(file)
        except (pyarrow.ArrowException, OSError, TypeError, ValueError) as problem:
            raise PositionsUnclear(
                f"The positions in {location}/{path} cannot be read ({one_line(str(problem))}); restore it first."
            ) from problem


def _told_by(file: Any) -> tuple[PositionSpan, ...]:
    if not set(_POSITION) <= set(file.schema_arrow.names):
        return ()
    told = spans_of(file.metadata)
    return told or united_spans(_of_rows(file.read_row_group(at, _POSITION)) for at in range(file.num_row_groups))


def _of_rows(rows: Any) -> Iterable[PositionSpan]:
    bounds = rows.group_by([ORIGIN, PARTITION]).aggregate([(OFFSET, "min"), (OFFSET, "max")]).to_pylist()
    return [
        PositionSpan(row[ORIGIN], row[PARTITION], int(row[f"{OFFSET}_min"]), int(row[f"{OFFSET}_max"]))
        for row in bounds
    ]


def spans_of(footer: Any) -> tuple[PositionSpan, ...]:
    """Return the spans that the statistics of a footer tell; none where a row group has rows of several partitions."""
    found: dict[tuple[str, int | str], tuple[int, int]] = {}
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        place, bounds = _place_of(group), _bounds(group).get(OFFSET)
        if place is None or bounds is None:
            return ()
        first, last = int(bounds[0]), int(bounds[1])
        before = found.get(place, (first, last))
        found[place] = min(before[0], first), max(before[1], last)
    return _told(found)


def _place_of(group: Any) -> _Place:
    """Return the source partition that all rows of a row group are of; a source with one origin may have no column of it."""
    bounds = {ORIGIN: ("", ""), **_bounds(group)}
    if PARTITION not in bounds:
        return None
    (origin, other_origin), (partition, other_partition) = bounds[ORIGIN], bounds[PARTITION]
    return (origin, partition) if (origin, partition) == (other_origin, other_partition) else None


def _bounds(group: Any) -> dict[str, tuple[Any, Any]]:
    """Return the least and the greatest value of each column of positions that has them."""
    found = {}
    for at in range(group.num_columns):
        column = group.column(at)
        statistics = column.statistics if column.path_in_schema in (ORIGIN, PARTITION, OFFSET) else None
        if statistics is not None and statistics.has_min_max:
            found[column.path_in_schema] = (statistics.min, statistics.max)
    return found


def _gathered(tables: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield tables in lists of about _GROUP_BYTES."""
    gathered: list[Any] = []
    for table in tables:
        if gathered and sum(other.nbytes for other in gathered) + table.nbytes > _GROUP_BYTES:
            yield gathered
            gathered = []
        gathered.append(table)
    if gathered:
        yield gathered


def _pyarrow_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as problem:
        raise PyarrowMissing(
            "Parquet files are read with pyarrow, which is not installed here: pip install 'exactlyonce-operator[compaction]', "
            "or run the command where drivers run."
        ) from problem
    return pyarrow.parquet
