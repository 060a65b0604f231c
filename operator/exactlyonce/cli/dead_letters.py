"""`exactlyonce dead-letters`: the malformed records of a stream, with their bytes."""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click

from exactlyonce.bounded_text import one_line
from exactlyonce.cli.ages import age
from exactlyonce.cli.asked_ledger import AskedLedger, asked_ledger
from exactlyonce.cli.cluster_commands import OUTPUT, of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.consoles import print_table
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET
from exactlyonce.errors import Refused
from exactlyonce.launch.asked_letters import paged_letters
from exactlyonce.ledger.history import LetterPlace, RecordedLetter
from exactlyonce.schema.model import field_name

_IDENTIFIER = re.compile(r"(.{1,1000})/(\d{1,90})")
_SHOWN_BYTES = 4096
_COLUMNS = ("id", "status", "batch", "topic", "partition", "position", "landed", "bytes", "error")


class NoDeadLetters(Refused):
    """The stream's sink keeps none."""


class UnknownLetter(Refused):
    """No dead letter has this id."""


class NotExported(Refused):
    """The file is there already, or cannot be written; nothing was written."""


@click.command(
    "dead-letters",
    cls=Taught,
    examples=(
        ("dead-letters orders -n shop", "the malformed records, and what is wrong with each"),
        ("dead-letters orders.yaml --id orders-0/340", "one of them, with its key and value"),
        ("dead-letters orders -n shop --export letters.jsonl", "all of them, a line of JSON for each"),
    ),
)
@TARGET
@click.option("--id", "identifier", help="Only the record with this id, with the bytes of its key and its value.")
@click.option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every dead letter to this new file: a line of JSON for each, key and value in base64.",
)
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many are listed at most."
)
@NAME
@STATE
@SECRETS
@OUTPUT
@of_a_cluster
def dead_letters(
    target: str, identifier: str | None, export: Path | None, limit: int, output: str, **options: Any
) -> None:
    """List the malformed records that a stream landed as dead letters, show one with its bytes, or export them all.

    With source.format.onMalformed: DeadLetter a malformed record lands in the ledger's table dead_letters, in the transaction
    of its batch. Only sinks whose own database holds the ledger keep dead letters.

    Nothing is changed. For stream NAME of a cluster the ledger is queried from here, with the login in the stream's secret,
    which your kubeconfig has to be allowed to get. Exit status 1 if there is no record with the id, if the sink keeps no dead
    letters, or if the file is there already.
    """
    if identifier is not None and export is not None:
        raise click.UsageError("--id and --export cannot be combined; leave one out.")
    asked = asked_ledger(target, options)
    require_letters(asked)
    if export is not None:
        _say_exported(asked, export, export_letters(asked, export), as_json=output == "json")
    elif identifier is not None:
        _show(asked, find_letters(asked, identifier), as_json=output == "json")
    else:
        as_json = output == "json"
        found = letters(asked, most=limit + 1, contents=as_json)
        first = islice(found, limit)
        _echo_json(letter_data(asked, letter) for letter in first) if as_json else _list(asked, list(first))
        if next(found, None) is not None:
            click.echo(f"These are the first {limit}; --limit shows more, --export all of them.", err=True)


def require_letters(asked: AskedLedger) -> None:
    """Require a sink that keeps dead letters.

    Raises:
        NoDeadLetters: if it does not.
    """
    sink = asked.stream.spec.sink
    if not sink.spec.holds_ledger:
        raise NoDeadLetters(
            f"{asked.stream.stream_id} writes to spec.sink.{field_name(sink.connector)}, which keeps no dead letters: a "
            "malformed record fails its batch there, and `exactlyonce failures` shows it."
        )


def letters(
    asked: AskedLedger, place: LetterPlace | None = None, most: int | None = None, *, contents: bool = True
) -> Iterator[RecordedLetter]:
    """Yield every dead letter, those at a place, or the first of them; key and value with `contents` alone."""
    return paged_letters(asked.ledger, asked.stream.stream_id, place, most, contents=contents)


def find_letters(asked: AskedLedger, identifier: str) -> tuple[RecordedLetter, ...]:
    """Return the dead letter with an id; several where its topic was recreated meanwhile.

    Raises:
        UnknownLetter: if there is none.
    """
    written = _IDENTIFIER.fullmatch(identifier)
    if written is None:
        raise UnknownLetter(
            f"{one_line(identifier)} is not the id of a dead letter, which has the form PARTITION/POSITION, such as "
            f"orders-0/340; `exactlyonce dead-letters` lists those of {asked.stream.stream_id}."
        )
    place = LetterPlace.of(written[1], int(written[2]))
    found = tuple(letter for letter in letters(asked, place) if letter.identifier == identifier)
    if not found:
        raise UnknownLetter(
            f"{asked.stream.stream_id} has no dead letter {one_line(identifier)}; `exactlyonce dead-letters` lists its own."
        )
    return found


def export_letters(asked: AskedLedger, file: Path) -> int:
    """Write all dead letters to a new file, and return how many there were; what ends early leaves no file of that name.

    Raises:
        NotExported: if the file is there already, or cannot be written.
        LedgerUnreachable: if the ledger stops answering.
    """
    if file.exists():
        raise _already_there(file)
    count = 0
    try:
        # A name that nobody else has: two exports to one file would write into each other's.
        with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".dead-letters-", suffix=".partial") as beside:
            for letter in letters(asked):
                beside.write(json.dumps(letter_data(asked, letter)) + "\n")
                count += 1
            beside.flush()
            os.fsync(beside.fileno())
            os.link(beside.name, file)  # unlike a rename, it replaces nothing
    except FileExistsError:
        raise _already_there(file) from None
    except OSError as problem:
        raise NotExported(f"{file} cannot be written: {problem.strerror}.") from None
    return count


def _already_there(file: Path) -> NotExported:
    return NotExported(f"{file} is there already, and nothing was exported; name a new file.")


def letter_data(asked: AskedLedger, letter: RecordedLetter) -> dict[str, object]:
    """Render a dead letter for a program; key and value are in base64, null where the record has none."""
    return {
        "id": letter.identifier,
        "status": str(letter.status),
        "batch": letter.row.batch,
        "topic": letter.row.partition.origin,
        "topicId": letter.row.origin_id or None,
        "partition": letter.row.partition.key,
        "position": asked.position(letter.row.position),
        "place": letter.place,
        "timestamp": None if letter.timestamp is None else letter.timestamp.astimezone(UTC).isoformat(),
        "landed": letter.landed_at.astimezone(UTC).isoformat(),
        "error": letter.row.error,
        "key": None if letter.record_key is None else base64.b64encode(letter.record_key).decode(),
        "value": None if letter.value is None else base64.b64encode(letter.value).decode(),
    }


def _say_exported(asked: AskedLedger, file: Path, count: int, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"stream": asked.stream.stream_id, "file": str(file), "exported": count}))
    else:
        click.echo(f"Exported {count} dead letters of {asked.stream.stream_id} to {file}.")


def _echo_json(rows: Iterator[dict[str, object]]) -> None:
    """Print a list as `json.dumps` would, of which only one row is in memory."""
    before = "["
    for row in rows:
        click.echo(before + "\n" + textwrap.indent(json.dumps(row, indent=2), "  "), nl=False)
        before = ","
    click.echo("[]" if before == "[" else "\n]")


def _list(asked: AskedLedger, found: Sequence[RecordedLetter]) -> None:
    if not found:
        click.echo(f"{asked.stream.stream_id} has no dead letters.")
        return
    now = datetime.now(UTC)
    rows = []
    for letter in found:
        row = letter_data(asked, letter)
        told = {**row, "landed": age(str(row["landed"]), now), "error": one_line(letter.row.error, 100)}
        rows.append({**told, "bytes": "-" if letter.value_bytes is None else letter.value_bytes})
    print_table(_COLUMNS, rows)


def _show(asked: AskedLedger, found: Sequence[RecordedLetter], *, as_json: bool) -> None:
    if as_json:
        _echo_json(letter_data(asked, letter) for letter in found)
        return
    for letter in found:
        for name, value in letter_data(asked, letter).items():
            if value is not None and name not in ("key", "value"):
                click.echo(f"{name:<10}{one_line(str(value), len(str(value)) + 1)}")
        for name, content in (("key", letter.record_key), ("value", letter.value)):
            click.echo(f"{name:<10}{'null' if content is None else f'{len(content)} bytes'}")
            for line in dump(content or b""):
                click.echo(f"  {line}")


def dump(content: bytes) -> Iterator[str]:
    """Yield the bytes as lines of offset, hexadecimal and printable ASCII: nothing of them acts on a terminal."""
    for start in range(0, min(len(content), _SHOWN_BYTES), 16):
        row = content[start : start + 16]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<47}  {shown}"
    if len(content) > _SHOWN_BYTES:
        yield f"… and {len(content) - _SHOWN_BYTES} bytes more; -o json and --export have them all"
