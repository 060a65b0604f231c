"""`exactlyonce recover`: where a stream stood whose ledger is lost, by the positions in the rows of its files."""

from __future__ import annotations

import json
from collections.abc import Sequence
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


class NotRecoverable(Refused):
    """There is nothing to recover, or nothing to recover it from."""


@click.command(
    cls=Taught,
    examples=(
        ("recover orders.yaml", "where the stream stood, and the start of one that goes on there"),
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
    """Find out where a stream stood whose ledger is lost, by the source positions in the rows of its files.

    It takes a stream from Kafka to Parquet files with sink.files.includePositions. Suspend the stream first. Nothing is
    changed: the command reads the positions in every file that readers are shown by _spark_metadata. For each partition it
    prints the offset behind the last row and the file that holds that row, and then the spec.source.kafka.start of a new
    stream. Describe that one with another metadata.name, sink.files.path and checkpoint, and with this start: each record then
    takes effect once over both folders.

    A file that is in place and not shown may have landed just before the ledger was lost, or not: such files are named, and
    nothing is printed until they are moved away. A partition without a row is not printed; add it, with the offset at which
    the stream began in it. Records that had no row, such as those that the transform leaves out, may be read again, and have
    no row again.

    It is refused while the ledger still knows a batch of the stream, for then nothing is lost; where a later batch stands
    before an earlier one, because a topic was recreated or the stream started over; and where a file that readers are shown is
    missing. It needs pyarrow, and fetches files from S3 one at a time.
    """
    opened = opened_files(target, options)
    _require_lost(opened)
    folder = opened.folder()
    found = folder.rebuilt(opened.stream.stream_id)
    if not found:
        raise NotRecoverable(
            f"Readers of {folder.location} are shown no rows, so they tell no positions; start the stream as a new one."
        )
    if output == "json":
        click.echo(json.dumps([_document(it, folder) for it in found], indent=2))
        return
    table = Table("topic", "partition", "offset", "file", box=None, pad_edge=False)
    for it in found:
        table.add_row(it.partition.origin, str(it.partition.key), str(it.position), folder.address(it.path), style=None)
    Console(soft_wrap=True).print(table)
    click.echo(f"\n{_start(found)}", nl=False)


def _require_lost(opened: OpenedFiles) -> None:
    """Require that the ledger is lost, and that positions are offsets.

    Raises:
        NotRecoverable: if not.
    """
    source, stream_id = opened.stream.spec.source, opened.stream.stream_id
    if not source.spec.positions_count_records:
        raise NotRecoverable(
            f"{stream_id} reads spec.source.{source.connector}, whose positions are not rebuilt from rows; restore its "
            " ledger from a backup."
        )
    view = opened.ledger.view(stream_id)
    if view is not None and view.stream.landed_batch is not None:
        raise NotRecoverable(
            f"The ledger knows {stream_id} up to batch {view.stream.landed_batch}, so nothing has to be recovered: "
            "`exactlyonce explain` tells where the stream stands."
        )


def _document(found: Rebuilt, folder: OutputFolder) -> dict[str, Any]:
    return {
        "topic": found.partition.origin,
        "partition": found.partition.key,
        "offset": found.position,
        "file": folder.address(found.path),
    }


def _start(found: Sequence[Rebuilt]) -> str:
    offsets = [{"topic": it.partition.origin, "partition": it.partition.key, "offset": it.position} for it in found]
    start: str = yaml.safe_dump({"start": {"from": "Offsets", "offsets": offsets}}, sort_keys=False)
    return start
