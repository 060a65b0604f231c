"""What has landed in files and is to be committed to a table: whether it still is there. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exactlyonce.connectors.files.manifest import DataFile
from exactlyonce_spark.connectors.delta.manifest import TableManifest, is_of_replay
from exactlyonce_spark.connectors.delta.table import FileFacts, RowsGone, TableOfAnother, Wanted


def require_files_of_batch(manifest: TableManifest, facts: Mapping[str, FileFacts], wanted: Wanted) -> None:
    """Require that all files of a batch are there, with those that it has taken over from replays.

    Raises:
        RowsGone: naming the files. What a replay has landed is not of the ranges of the batch that has taken it over.
    """
    gone = [file for file in manifest.manifest.files if file.path not in facts]
    if not gone:
        return
    own = not all(map(is_of_replay, gone))
    of = (
        f"batch {manifest.batch}, which has landed,"
        if own
        else f"replays, which batch {manifest.batch} has taken over,"
    )
    raise RowsGone(
        f"Files of {of} are missing from {wanted.where} or have another size ({_some(gone)}): somebody deleted them before the "
        f"table's log named them, such as {wanted.words.cleanup}. Restore them, and the stream continues with them.",
        [manifest.batch] if own else [],
    )


def require_replayed_files(files: Sequence[DataFile], facts: Mapping[str, FileFacts], wanted: Wanted) -> None:
    """Require that all files are there that replays have landed and no batch has taken over.

    Raises:
        RowsGone: naming the files, and no batch.
    """
    gone = [file for file in files if file.path not in facts]
    if gone:
        raise RowsGone(
            f"Files that replays have landed, with {_rows_in(gone)}, are missing from {wanted.where} or have another size "
            f"({_some(gone)}): somebody deleted them before a batch committed them to the table's log, such as "
            f"{wanted.words.cleanup}. Restore them, and the stream continues with them; or {wanted.words.another}."
        )


def require_same_table(of_another: Sequence[TableManifest], wanted: Wanted) -> None:
    """Refuse to commit what was written for another table; `of_another` is what was.

    Raises:
        TableOfAnother: saying how many rows those are.
    """
    if of_another:
        rows = _rows_in([file for it in of_another for file in it.manifest.files])
        raise TableOfAnother(
            f"The table at {wanted.where} is another one than that for which replays have landed {rows} that no batch has "
            f"committed yet: somebody deleted and recreated it. Restore the former table, or {wanted.words.another}."
        )


def _rows_in(files: Sequence[DataFile]) -> str:
    rows = sum(file.rows or 0 for file in files)
    return f"{rows} {'row' if rows == 1 else 'rows'}"


def _some(files: Sequence[DataFile]) -> str:
    return f"{', '.join(file.path for file in files[:3])}{', …' if len(files) > 3 else ''}"
