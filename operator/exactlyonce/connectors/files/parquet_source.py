"""A Parquet file that is to become a part of another one: what its footer says, and its row groups; nothing is kept open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.files.compaction_plan import MergeUnfit

_READS_BY = ("org.apache.spark.legacy", "org.apache.spark.timeZone")
"""How the keys of a footer begin by which Spark decides what the file's dates and timestamps mean."""


class FileUnreadable(MergeUnfit):
    """A file that has landed is not a Parquet file any more."""


@dataclass(frozen=True)
class Source:
    """One file, at `place` on this machine; a merge may have a thousand. `leaves` are what a reader takes from its columns."""

    address: str
    place: Path
    footer: Any
    schema: Any
    leaves: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, place: Path, address: str) -> Source:
        """Read the footer of a file.

        Raises:
            FileUnreadable: if it has none.
        """
        with _opened(place, address) as file:
            return cls(address, place, file.metadata, file.schema_arrow, leaves_of(file))

    def read(self, group: int) -> Any:
        """Return the rows of a row group.

        Raises:
            FileUnreadable: if they cannot be read.
        """
        with _opened(self.place, self.address, metadata=self.footer) as file:
            return file.read_row_group(group)

    @property
    def codec(self) -> str:
        """The compression of the first column; a file without row groups has none."""
        if not self.footer.num_row_groups:
            return "snappy"
        codec = str(self.footer.row_group(0).column(0).compression).lower()
        return "none" if codec == "uncompressed" else codec

    @property
    def described(self) -> Mapping[bytes, bytes]:
        """What the writer says of the file beside its columns, such as Spark's own description of them."""
        return self.footer.metadata or {}

    @property
    def reads_by(self) -> dict[str, str]:
        """What Spark's readers decide by: the same bytes are another day where these differ."""
        told = {key.decode(errors="replace"): text.decode(errors="replace") for key, text in self.described.items()}
        return {key: text for key, text in sorted(told.items()) if key.startswith(_READS_BY)}


@contextmanager
def _opened(place: Path, address: str, **options: Any) -> Iterator[Any]:
    import pyarrow.parquet

    try:
        # Spark writes timestamps of microseconds as INT96; read as nanoseconds, those of other centuries would not fit.
        with pyarrow.parquet.ParquetFile(place, coerce_int96_timestamp_unit="us", **options) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as problem:
        raise FileUnreadable(
            f"{address}, which has landed, cannot be read ({one_line(str(problem))}): it is damaged, so it was not merged with "
            "any other. Restore it from a backup, and run it again."
        ) from problem


def require_alike(first: Source, other: Source) -> None:
    """Require that every reader reads the rows of both files the same if they are in one.

    Raises:
        MergeUnfit: saying in what they differ.
    """
    difference = _difference(first, other)
    if difference is not None:
        raise MergeUnfit(
            f"{first.address} and {other.address} cannot become one, since {difference}. These and the files between them stay "
            "as they are, and readers count them as before; start a stream with another streamId and another path if they have "
            "to be merged."
        )


def _difference(first: Source, other: Source) -> str | None:
    for name in dict.fromkeys((*first.schema.names, *other.schema.names)):
        here, there = _type(first, name), _type(other, name)
        if here != there:
            return f"column {one_line(name)} is {here} in the first and {there} in the second"
    if not first.schema.equals(other.schema):
        return "their columns are in another order"
    for one, two in zip(first.leaves, other.leaves, strict=False):
        if one != two:
            return f"column {one_line(one[0])} is {_leaf(one)} in the first and {_leaf(two)} in the second"
    if len(first.leaves) != len(other.leaves):
        return "their columns have other parts"
    for key in sorted({*first.reads_by, *other.reads_by}):
        if first.reads_by.get(key) != other.reads_by.get(key):
            return (
                f"their footers differ in {one_line(key)}, by which Spark reads dates and timestamps "
                "(datetimeRebaseModeInWrite, int96RebaseModeInWrite or the time zone was changed between them)"
            )
    return None


def _type(source: Source, name: str) -> str:
    at = source.schema.get_field_index(name)
    if at < 0:
        return "missing"
    field = source.schema.field(at)
    return one_line(f"{field.type}{'' if field.nullable else ' not null'}")


def _leaf(leaf: tuple[Any, ...]) -> str:
    _, physical, logical, *_ = leaf
    return one_line(physical if logical == "None" else f"{physical} {logical}")


def leaves_of(file: Any) -> tuple[tuple[Any, ...], ...]:
    """Return what a reader takes from the schema of an open file: each leaf's path, types and levels."""
    columns = (file.schema.column(at) for at in range(len(file.schema)))
    return tuple(
        (
            leaf.path,
            leaf.physical_type,
            str(leaf.logical_type),
            leaf.length,
            leaf.max_definition_level,
            leaf.max_repetition_level,
        )
        for leaf in columns
    )
