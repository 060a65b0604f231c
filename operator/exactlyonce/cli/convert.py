"""`exactlyonce convert`: a file of the form that earlier versions read, rewritten on the screen or in place."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import click

from exactlyonce.api.former_form import NotRewritten, Rewritten, rewritten
from exactlyonce.api.resource import require_kind, stream_documents, text_of
from exactlyonce.errors import Refused


class FileNotWritten(Refused):
    """A file could not be written; it is as it was."""


def convert_file(file: Path, *, in_place: bool) -> None:
    """Print the text of a file in the current form, or put it in its place.

    Raises:
        ResourceInvalid: if the file cannot be read, is no YAML, or holds no stream.
        NotRewritten: if it has to be rewritten by hand.
        FileNotWritten: if it cannot be written.
    """
    for document in stream_documents(file):
        require_kind(document, str(file))
    try:
        made = rewritten(text_of(file))
    except NotRewritten as problem:
        raise NotRewritten(f"{file}: {problem}") from problem
    if not in_place:
        click.echo(made.text, nl=False)
        return
    if made.streams:
        _replace(file.resolve(), made)
    click.echo(f"{file}: {_words(made.streams)}.", err=True)


def _words(streams: int) -> str:
    match streams:
        case 0:
            return "nothing to rewrite"
        case 1:
            return "1 stream rewritten"
        case _:
            return f"{streams} streams rewritten"


def _replace(file: Path, made: Rewritten) -> None:
    """Put the new text in the place of a file at once: whoever dies here leaves the old one whole."""
    beside = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with beside.open("w", encoding="utf-8", newline="") as opened:
            opened.write(made.text)
            opened.flush()
            os.fsync(opened.fileno())
        shutil.copymode(file, beside)
        beside.replace(file)
    except OSError as problem:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise FileNotWritten(
            f"{file}: the file cannot be written ({problem.strerror}) and is as it was; make its folder writable, or print "
            "the text without --write."
        ) from problem
