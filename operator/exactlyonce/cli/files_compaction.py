"""`exactlyonce files --compact`: which small files would become one, and making them so."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.port import Ledger
from exactlyonce.sink.files import OutputFolder, SmallFiles


def show_compaction(folder: OutputFolder, ledger: Ledger, stream_id: str, *, merge: bool, as_json: bool) -> None:
    """Show what can be merged, one line for each file that it becomes; or merge it and show what has been.

    Raises:
        ExactlyOnceError: after what has been merged is shown.
    """
    found = folder.compact(ledger, stream_id) if merge else iter(folder.small_files(ledger, stream_id))
    told: list[SmallFiles] = []
    problem: ExactlyOnceError | None = None
    try:
        for small in found:
            told.append(small)
            if not as_json:
                click.echo(f"{small.address}  {_sum([small])} into one")  # as it happens: it may be interrupted
    except ExactlyOnceError as raised:
        problem = raised
    if as_json:
        click.echo(json.dumps([_document(small) for small in told], indent=2))
    if told or problem is None:
        click.echo(_conclusion(told, folder.location, merge=merge), err=True)
    if problem is not None:
        raise problem


def _conclusion(told: list[SmallFiles], location: str, *, merge: bool) -> str:
    if not told:
        return f"No small files to merge in {location}."
    became = f"{len(told)} file{'' if len(told) == 1 else 's'}"
    if merge:
        return (
            f"{_sum(told)} became {became}. --remove-orphans removes what they replace after a day, once Spark's readers are "
            "not shown it any more."
        )
    return f"{_sum(told)} would become {became}; nothing was changed. Give --yes to merge them."


def _sum(found: Iterable[SmallFiles]) -> str:
    known = list(found)
    files, size = sum(small.files for small in known), sum(small.size_bytes for small in known)
    return f"{files} files of {size:,} bytes"


def _document(small: SmallFiles) -> dict[str, object]:
    return {"folder": small.address, "files": small.files, "sizeBytes": small.size_bytes, "rows": small.rows}
