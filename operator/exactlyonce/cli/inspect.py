"""`exactlyonce checkpoint` and `exactlyonce inspect`: what Spark keeps in a folder, of any query."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from exactlyonce.assembly import folder_of_a_person
from exactlyonce.cli.cluster_commands import OUTPUT
from exactlyonce.cli.commands import Taught
from exactlyonce.errors import Refused
from exactlyonce.inspect.checkpoint import Checkpoint, read_checkpoint
from exactlyonce.inspect.compare import compare
from exactlyonce.inspect.gather import Look, facts_of
from exactlyonce.inspect.output import FOLDER, read_output
from exactlyonce.inspect.report import Report, data_of, text_of
from exactlyonce.schema.places import S3_PREFIX, is_on_s3

EXIT_NEEDS_A_PERSON = 2
_Command = TypeVar("_Command", bound=Callable[..., Any])

_PATH = click.argument("path", metavar="PATH")
_SERVICE = (
    click.option("--endpoint", help="The address of an S3 service other than Amazon's."),
    click.option("--region", help="The region of the bucket."),
    click.option("--path-style", is_flag=True, help="Name the bucket in the path instead of in the host's name."),
)
_BATCHES = click.option(
    "--batches",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="How many of the latest batches to show.",
)


class WrongFolder(Refused):
    """A path cannot be looked at, or is of the other kind."""


def _of_a_service(command: _Command) -> _Command:
    for option in reversed(_SERVICE):
        command = option(command)
    return command


@click.command(
    cls=Taught,
    examples=(
        ("checkpoint /data/checkpoints/orders", "of any query, on a disk"),
        ("checkpoint s3a://lake/checkpoints/orders -o json", "on S3, for a program"),
        ("checkpoint /data/checkpoints/orders --batches 50", "more of its past"),
    ),
)
@_PATH
@_BATCHES
@_of_a_service
@OUTPUT
def checkpoint(path: str, batches: int, output: str, **service: Any) -> None:
    """Show a checkpoint of any Structured Streaming query, and what a restart of Spark would do with it.

    PATH is the query's checkpointLocation, or one generation of a stream's, on a disk or on s3a://, where your own AWS
    credentials are used. Any release of Spark since 2.1 may have written it, with any sources and any sink. Nothing is changed.

    Each batch is shown with its range of each source, when it was planned, and its watermark; of a file source also the files
    that it reads. Then come the state of operators, everything odd by name, and what a restart of Spark 4.2 does: continue
    with the next batch, run the latest one again, or fail, and with which error.

    Exit status 2 when a restart fails, or leaves out batches of which no commit is there.
    """
    found = _looked(path, batches, service)
    if found.checkpoint is None:
        raise WrongFolder(
            f"{path} is an output folder of Spark's file sink, not a checkpoint; use `exactlyonce inspect`."
        )
    _show(Report(read_checkpoint(found.checkpoint), None, None, batches), output)


@click.command(
    cls=Taught,
    examples=(
        ("inspect /data/orders", "an output folder of Spark's file sink"),
        ("inspect /data/orders --checkpoint /data/checkpoints/orders", "and whether both fit together"),
        ("inspect s3a://lake/orders/_spark_metadata", "its log alone"),
    ),
)
@_PATH
@click.option(
    "--checkpoint", "beside", metavar="PATH", help="The checkpoint of the query that writes the output folder PATH."
)
@_BATCHES
@_of_a_service
@OUTPUT
def inspect(path: str, beside: str | None, batches: int, output: str, **service: Any) -> None:
    """Show what Spark keeps in a folder: a checkpoint, or the output of its file sink; nothing is changed.

    PATH is on a disk or on s3a://, where your own AWS credentials are used. Of an output folder, the log _spark_metadata is
    read as Spark reads it: which files readers are shown, and what is odd: a compact file or an entry that is missing or
    torn, files that no entry names, and files that are named and gone.

    With --checkpoint the two are compared. Spark's file sink drops a batch without a word if its number is not above the
    latest in _spark_metadata. So a new checkpoint with an old output folder loses rows: the command says which batches have
    been dropped, and which would be. It also says how a stream continues the folder in place of the query: the batch for
    continueAfterBatch, and the start for its source where the checkpoint tells one.

    Exit status 2 when a restart fails or would lose rows, or when readers of the folder fail.
    """
    state = None if beside is None else _checkpoint_beside(beside, batches, service)
    found = _looked(path, batches, service, frozenset() if state is None else frozenset(state.planned))
    folder = None if found.output is None else read_output(found.output)
    if state is not None and folder is None:
        raise WrongFolder(
            f"{path} has no {FOLDER}, so Spark's file sink did not write it; name its output and its --checkpoint."
        )
    comparison = compare(state, folder) if state is not None and folder is not None else None
    if state is None and found.checkpoint is not None:
        state = read_checkpoint(found.checkpoint)
    _show(Report(state, folder, comparison, batches), output)


def _checkpoint_beside(path: str, batches: int, service: dict[str, Any]) -> Checkpoint:
    found = _looked(path, batches, service).checkpoint
    if found is None:
        raise WrongFolder(f"{path}, given with --checkpoint, is not a checkpoint; name the query's checkpointLocation.")
    return read_checkpoint(found)


def _looked(path: str, batches: int, service: dict[str, Any], also: frozenset[int] = frozenset()) -> Look:
    if not is_on_s3(path):
        given = [f"--{name.replace('_', '-')}" for name, value in service.items() if value]
        if given:
            raise WrongFolder(
                f"{', '.join(given)} belongs to a PATH on {S3_PREFIX}, and {path} is on a disk; leave it out."
            )
        plain = Path(path.removeprefix("file://"))
        if "://" in path.removeprefix("file://"):
            raise WrongFolder(f"{path} is neither a path of this machine nor on {S3_PREFIX}; write one of these.")
        if not plain.exists():
            raise WrongFolder(
                f"There is no folder {path}; name a checkpoint, or an output folder of Spark's file sink."
            )
        if not plain.is_dir():
            raise WrongFolder(f"{path} is a file; name the folder that it is in.")
        path = str(plain.resolve())
    return facts_of(folder_of_a_person(path, **service), batches, also)


def _show(report: Report, output: str) -> None:
    click.echo(json.dumps(data_of(report), indent=2) if output == "json" else text_of(report))
    if report.needs_a_person:
        sys.exit(EXIT_NEEDS_A_PERSON)
