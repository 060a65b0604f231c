"""`exactlyonce files`: the files that a stream has landed, those that can be removed, and those that can become one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.assembly import file_sink, source_address
from exactlyonce.cli.cluster_commands import OUTPUT, of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.files_compaction import show_compaction
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET, cluster_of, is_of_a_cluster, looked_at
from exactlyonce.connectors.specs import ContinuesOutput
from exactlyonce.errors import Refused
from exactlyonce.launch.secrets import read_secret
from exactlyonce.ledger.port import Ledger
from exactlyonce.schema.model import field_name
from exactlyonce.sink.files import LandedFile, Orphan, OutputFolder
from exactlyonce.source.connector import SourceAddress

_MOST_SHOWN = 10


class NotConfirmed(Refused):
    """Nobody agreed that files are removed."""


class FolderElsewhere(Refused):
    """The folder is on a volume of the stream's pods, which this machine does not reach."""


@dataclass(frozen=True)
class OpenedFiles:
    """A stream and its stores, wherever it runs."""

    stream: Stream
    ledger: Ledger
    secret: Callable[[], Mapping[str, str]]
    source: Callable[[], SourceAddress]
    in_pods: bool

    def landed(self) -> tuple[LandedFile, ...]:
        """Return the files that the ledger names, behind those of a query of Spark's own that the stream continues."""
        sink = self.stream.spec.sink.spec
        found = file_sink(self.stream.spec).landed(sink, self.ledger, self.stream.stream_id)
        has_former = isinstance(sink, ContinuesOutput) and sink.continue_after_batch is not None
        return (*self.folder().former(), *found) if has_former else found

    def folder(self) -> OutputFolder:
        """Return the folder that the stream writes to.

        Raises:
            FolderElsewhere: if it is on a volume of pods.
        """
        folder = file_sink(self.stream.spec).folder(self.stream.spec.sink.spec, self.secret())
        if self.in_pods and folder.location.startswith(("/", "file:")):
            raise FolderElsewhere(
                f"{folder.location} is on a volume of the stream's pods, which this machine does not reach; run `exactlyonce "
                "files FILE` where that volume is mounted."
            )
        return folder


@click.command(
    cls=Taught,
    examples=(
        ("files orders.yaml", "the address of each file to read"),
        ("files orders -n shop -o json", "with sizes, rows and source positions"),
        ("files orders.yaml --orphans", "what drivers that died have left behind"),
        ("files orders.yaml --remove-orphans", "remove it, after confirmation"),
        ("files orders.yaml --remove-orphans --yes", "from a scheduled job"),
        ("files orders.yaml --compact", "which small files would become one"),
        ("files orders.yaml --compact --yes", "merge them, while the stream runs"),
    ),
)
@TARGET
@click.option("--orphans", is_flag=True, help="List the files that do not count and never will.")
@click.option("--remove-orphans", is_flag=True, help="Remove the orphans; drivers may keep running.")
@click.option("--compact", is_flag=True, help="Show which small files would be merged; with --yes, merge them.")
@click.option(
    "-y",
    "--yes",
    is_flag=True,
    help="Remove orphans without asking; with --compact, which never asks, merge instead of showing.",
)
@NAME
@STATE
@SECRETS
@OUTPUT
@of_a_cluster
def files(
    target: str, orphans: bool, remove_orphans: bool, compact: bool, yes: bool, output: str, **options: Any
) -> None:
    """List the files that a stream has landed, one address per line: a reader of exactly these reads each record once.

    The ledger alone says which files count. spark.read of the path needs no list, since it follows _spark_metadata; anything
    else that reads the folder itself would also read what drivers that died have left there. Give this list to it:
    pyarrow.dataset.dataset(addresses), or DuckDB's read_parquet([...]). `-o json` adds the batch, the size and the number of
    rows, which is null for JSON and CSV, because those formats do not record it. The batch is null for a file that a replay has
    landed since the latest batch: it counts, but spark.read sees it only once the next batch has landed. It is null as well for
    the files of a query that the stream continues (sink.files.continueAfterBatch), whose list is read from the folder. For
    Parquet files with includePositions it also adds the first and the last source position per partition, unless a row group
    mixes partitions.

    An orphan is a file that nobody can land any more: its driver was fenced, its batch has landed from other files, or its
    replay no longer holds any range.
    What a driver may still land is never one, however old it is; nor is a file in another stream's folder, or one from before
    this stream was recreated, adopted or started over. A file that was merged into another one is an orphan after a day. Where
    the stream continues the output of a query (sink.files.continueAfterBatch), part files that the query has never shown are
    orphans.
    Removing orphans changes nothing that a reader counts, may be interrupted and repeated, and is refused where the ledger is
    not the one that the folder was written with, or is behind what readers are shown.

    --compact merges the small Parquet files of each folder into files of about sink.files.targetFileSize, while drivers run.
    No reader counts a row twice or misses one: the ledger's list changes in one transaction, and what Spark is shown in one
    write. Up to ten of the latest batches stay as they are, because Spark's log still shows each of them by itself. The small
    files become orphans after a day; until then whoever has listed them can read them. But a stream that reads the folder as
    files arrive (spark.readStream) takes a merged file for a new one and reads its rows again: do not merge what such a stream
    reads. Merging needs pyarrow. Files that do not fit together, such as a damaged one, stay as they are; the others are
    merged, and the exit status is 1.

    For stream NAME of a cluster this command queries the ledger with the login in the stream's secret; the user of your
    kubeconfig needs the right to get that secret. It reads and changes a folder on S3 with the login of sink.files.secretRef,
    or with your own AWS credentials where the stream names none.
    """
    if orphans and remove_orphans:
        raise click.UsageError("--remove-orphans lists the orphans too; leave --orphans out.")
    if compact and (orphans or remove_orphans):
        raise click.UsageError("--compact is a step of its own; leave --orphans and --remove-orphans out.")
    if yes and not (remove_orphans or compact):
        raise click.UsageError(
            "--yes goes with --remove-orphans or --compact; give it with one of them, or leave it out."
        )
    opened = opened_files(target, options)
    as_json = output == "json"
    if compact:
        show_compaction(opened.folder(), opened.ledger, opened.stream.stream_id, merge=yes, as_json=as_json)
        return
    if not orphans and not remove_orphans:
        _show_landed(opened.landed(), as_json=as_json)
        return
    folder = opened.folder()
    found = folder.orphans(opened.ledger, opened.stream.stream_id)
    if remove_orphans and found:
        _require_agreement(found, folder, agreed=yes)
        folder.remove(found)
    _show_orphans(found, folder, as_json=as_json, removed=remove_orphans)


def opened_files(target: str, options: Mapping[str, Any]) -> OpenedFiles:
    """Open the stores of a stream with files, of a FILE or of a cluster."""
    return _of_cluster(target, options) if is_of_a_cluster(target) else _of_file(target, options)


def _of_file(target: str, options: Mapping[str, Any]) -> OpenedFiles:
    opened = looked_at(target, options)
    read = partial(read_secret, Path(options["secrets"]))
    spec = opened.stream.spec
    return OpenedFiles(
        opened.stream,
        opened.ledger,
        partial(read, spec.sink.spec.secret_ref),
        partial(source_address, spec.source, read),
        in_pods=False,
    )


def _of_cluster(target: str, options: Mapping[str, Any]) -> OpenedFiles:
    from exactlyonce.cli.cluster_offsets import cluster_ledger, cluster_secret, source_with_own_login

    cluster, namespace = cluster_of(options)
    stream = parse_stream(cluster.stream(namespace, target), f"{namespace}/{target}")
    sink = stream.spec.sink
    file_sink(stream.spec)  # a sink of another kind is named before any secret is read
    secret = partial(cluster_secret, cluster, stream, f"spec.sink.{field_name(sink.connector)}", sink.spec.secret_ref)
    source = stream.spec.source
    of_source = partial(cluster_secret, cluster, stream, f"spec.source.{field_name(source.connector)}")
    return OpenedFiles(
        stream, cluster_ledger(cluster, stream), secret, partial(source_with_own_login, source, of_source), in_pods=True
    )


def _require_agreement(found: Sequence[Orphan], folder: OutputFolder, *, agreed: bool) -> None:
    """Ask whether these files may go.

    Raises:
        NotConfirmed: if nobody says yes.
    """
    if agreed:
        return
    for orphan in found[:_MOST_SHOWN]:
        click.echo(folder.address(orphan.path), err=True)
    if len(found) > _MOST_SHOWN:
        click.echo(f"and {len(found) - _MOST_SHOWN} more", err=True)
    if not _can_ask():
        raise NotConfirmed(
            f"{_sum(found)} in {folder.location}: nothing was removed, because there is no terminal to ask for confirmation; "
            "give --yes."
        )
    if not click.confirm(f"{_sum(found)} in {folder.location}. Remove them?", err=True):
        raise NotConfirmed("Nothing was removed.")


def _can_ask() -> bool:
    return sys.stdin.isatty()


def _show_landed(found: Sequence[LandedFile], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([_document(file) for file in found], indent=2))
        return
    for file in found:
        click.echo(file.address)


def _document(file: LandedFile) -> dict[str, Any]:
    positions = [
        {"origin": span.origin, "partition": span.partition, "first": span.first, "last": span.last}
        for span in file.spans
    ]
    return {
        "address": file.address,
        "batch": file.batch,
        "sizeBytes": file.size_bytes,
        "rows": file.rows,
        "positions": positions,
    }


def _show_orphans(found: Sequence[Orphan], folder: OutputFolder, *, as_json: bool, removed: bool) -> None:
    if as_json:
        listed = [{"address": folder.address(orphan.path), "sizeBytes": orphan.size_bytes} for orphan in found]
        click.echo(json.dumps(listed, indent=2))
        return
    for orphan in found:
        click.echo(folder.address(orphan.path))
    click.echo(f"{_sum(found)}{' removed' if removed and found else ''}.", err=True)


def _sum(found: Sequence[Orphan]) -> str:
    size = sum(orphan.size_bytes for orphan in found)
    return f"{len(found)} orphan{'' if len(found) == 1 else 's'} of {size:,} bytes"
