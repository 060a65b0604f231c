"""`exactlyonce recover`: where a stream stood whose ledger is lost, by the positions in the rows of its files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table

from exactlyonce.cli.cluster_commands import OUTPUT, of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.files import OpenedFiles, opened_files
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET
from exactlyonce.errors import Refused
from exactlyonce.sink.files import OutputFolder, Rebuilt
from exactlyonce.source.connector import GoesOn


class NotRecoverable(Refused):
    """There is nothing to recover, or nothing to recover it from."""


@click.command(
    cls=Taught,
    examples=(
        ("recover orders.yaml", "where the stream stood, and the start of one that continues there"),
        ("recover orders -n shop -o json", "for stream NAME of a cluster, to be read by a script"),
    ),
)
@TARGET
@NAME
@STATE
@SECRETS
@OUTPUT
@of_a_cluster
def recover(target: str, output: str, **options: Any) -> None:
    """Find out where a stream stood before its ledger was lost, by the source positions in the rows of its files.

    It needs a stream to Parquet files with sink.files.includePositions. Suspend the stream first. Nothing is changed: the
    command reads the positions in every file that readers are shown by _spark_metadata. For each partition it prints the
    position behind the last row and the file that holds that row, and then the start of a new stream's source. Describe that
    one with another metadata.name, sink.files.path and checkpoint, and with this start: each record then takes effect once
    over both folders.

    Where one record of the source may hold several, as an aggregate in a shard does, the record of each partition's last row
    is read, since it may hold more of them than have landed. A shard of which a child has rows was read to its end.

    A file that is in place and not shown may have landed just before the ledger was lost, or not: such files are named, and
    nothing is printed until they are moved away. A partition without a row is not printed; add it, with the position at
    which the stream began in it. Records that had no row, such as those that the transform leaves out, may be read again, and
    have no row again. What the state of a query held, such as an aggregation, a join or dropDuplicates, is not recovered: the
    new stream begins without it.

    It is refused while the ledger still knows a batch of the stream, for then nothing is lost; where a later batch stands
    before an earlier one, because a topic was recreated, the stream started over, or files were merged; and where a file that
    readers are shown is missing. It needs pyarrow, and fetches files from S3 one at a time.
    """
    opened = opened_files(target, options)
    _require_lost(opened)
    folder = opened.folder()
    found = folder.rebuilt(opened.stream.stream_id)
    if not found:
        raise NotRecoverable(
            f"Readers of {folder.location} are shown no rows, so they tell no positions; start the stream as a new one."
        )
    behind = opened.source().start_behind({it.partition: it.last for it in found})
    for note in behind.notes:
        click.echo(note, err=True)
    if output == "json":
        click.echo(json.dumps([*_documents(found, behind, folder)], indent=2))
        return
    table = Table(*behind.columns, "file", box=None, pad_edge=False)
    for document in _documents(found, behind, folder):
        table.add_row(*map(str, document.values()), style=None)
    Console(soft_wrap=True).print(table)
    click.echo(f"\n{yaml.safe_dump({'start': dict(behind.start)}, sort_keys=False)}", nl=False)


def _require_lost(opened: OpenedFiles) -> None:
    """Require that the ledger is lost.

    Raises:
        NotRecoverable: if not.
    """
    stream_id = opened.stream.stream_id
    view = opened.ledger.view(stream_id)
    if view is not None and view.stream.landed_batch is not None:
        raise NotRecoverable(
            f"The ledger knows {stream_id} up to batch {view.stream.landed_batch}, so nothing has to be recovered: "
            "`exactlyonce explain` tells where the stream stands."
        )


def _documents(found: Sequence[Rebuilt], behind: GoesOn, folder: OutputFolder) -> Iterator[dict[str, Any]]:
    """Yield a row per partition that the source still tells of."""
    for it in found:
        if it.partition in behind.positions:
            values = (it.partition.origin, it.partition.key, behind.positions[it.partition], folder.address(it.path))
            yield dict(zip((*behind.columns, "file"), values, strict=True))
