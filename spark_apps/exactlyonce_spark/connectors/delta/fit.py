"""Whether a query's rows fit a Delta table, and which columns it lacks. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from exactlyonce.connectors.files.columns import ColumnsUnfit, Type, kinds, plain, require_names, told
from exactlyonce.connectors.files.manifest import DataFile
from exactlyonce_spark.connectors.delta.table import FileFacts, TableSeen, TableUnfit

_NESTED = ("array", "map", "struct")
_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The folder in which Spark puts NULL."""

_NOT_IN_NAMES = " ,;{}()\n\t="
_ATOMIC = frozenset(
    "string long integer short byte float double boolean binary date timestamp timestamp_ntz".split()  # noqa: SIM905
)


def require_holdable(columns: Mapping[str, Type], partition_by: Sequence[str]) -> None:
    """Require that a Delta table can have these columns, partitioned so.

    Raises:
        ColumnsUnfit: naming the column and what to do.
    """
    for name, type_ in columns.items():
        strange = next((kind for kind in kinds(type_) if not _is_known(kind)), None)
        if strange is not None:
            raise ColumnsUnfit(
                f"The type of column {name} is or contains {strange}, which a Delta table cannot hold; leave it out or convert "
                "it in the transform."
            )
        if any(letter in _NOT_IN_NAMES for letter in name):
            raise ColumnsUnfit(
                f"The name of column {name!r} has a space or one of ,;{{}}()= in it, which a Delta table does not take; rename "
                "it in the transform."
            )
    require_names(columns, partition_by, "sink.delta.partitionBy")


def lacking(
    seen: TableSeen, columns: Mapping[str, Type], partition_by: Sequence[str], where: str, sink: str
) -> dict[str, Type]:
    """Return the columns that the query yields and the table lacks. Those that the query does not yield are NULL.

    Raises:
        TableUnfit: if the others do not fit the table, or it is partitioned otherwise.
    """
    if tuple(partition_by) != seen.partition_by:
        raise TableUnfit(
            f"The table at {where} is partitioned by {_listed(seen.partition_by)} and {sink}.partitionBy says "
            f"{_listed(partition_by)}; make them equal."
        )
    other = [
        f"{name} is {told(seen.columns[name])} in the table and {told(type_)} in the query"
        for name, type_ in columns.items()
        if name in seen.columns and seen.columns[name] != plain(type_)
    ]
    lowered = {name.lower(): name for name in seen.columns}
    new = {name: type_ for name, type_ in columns.items() if name not in seen.columns}
    other += [f"{name} is {lowered[name.lower()]} in the table" for name in new if name.lower() in lowered]
    if other:
        raise TableUnfit(f"The rows do not fit the table at {where}: {'; '.join(other)}. Change the transform.")
    return new


def require_files_fit(seen: TableSeen, facts: Mapping[str, FileFacts], whose: str, where: str) -> None:
    """Require that the table still has the columns of files that were written for it; `whose` says which landing's.

    Raises:
        TableUnfit: naming the columns.
    """
    unfit = {
        name
        for fact in facts.values()
        for name, type_ in fact.columns.items()
        if seen.columns.get(name) != plain(type_)
    }
    if unfit:
        raise TableUnfit(
            f"Somebody has changed the columns of the table at {where} ({', '.join(sorted(unfit))}) since {whose} "
            "landed, so its rows do not fit any more. Change them back, and the stream continues with them."
        )


def partition_of(file: DataFile) -> dict[str, str | None]:
    """Return the partition of a file, as the names of its folders say it, below that of its attempt."""
    folders = (part.partition("=") for part in file.path.split("/")[1:-1])
    return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in folders}


def require_partitioned_so(seen: TableSeen, files: Sequence[DataFile], whose: str, where: str) -> None:
    """Require that the table still is partitioned as files are: it would read NULL in every other partition column.

    Raises:
        TableUnfit: naming both.
    """
    other = {names for file in files if (names := tuple(partition_of(file))) != seen.partition_by}
    if other:
        raise TableUnfit(
            f"Somebody has changed the partition columns of the table at {where} to {_listed(seen.partition_by)}, and "
            f"{whose}, which has landed, is partitioned by {_listed(min(other))}. Change them back, and the stream continues "
            "with its rows."
        )


def _is_known(kind: str) -> bool:
    return kind in _ATOMIC or kind in _NESTED or kind.startswith("decimal(")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "no column"
