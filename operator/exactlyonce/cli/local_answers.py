"""What a person asks of a stream of a file, kept beside its status: what annotations are in a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exactlyonce.api.resource import RESET_OFFSETS, SETTLE_LOADS, Stream
from exactlyonce.cli.whole_files import replace_whole
from exactlyonce.errors import Refused


class AnswersUnreadable(Refused):
    """The file of answers is there and cannot be read."""


class AnswersNotKept(Refused):
    """The file of answers cannot be written; it is as it was."""


@dataclass(frozen=True)
class LocalAnswers:
    """The file of answers; one that was left behind has no effect, since each answer names its load."""

    file: Path

    def read(self) -> str | None:
        """Return the answers; None where nothing was answered.

        Raises:
            AnswersUnreadable: if they cannot be read.
        """
        return _read(self.file, "The answers for loads", "answer again with `exactlyonce settle-loads`")

    def write(self, text: str) -> None:
        """Keep answers in the place of those before.

        Raises:
            AnswersNotKept: if they cannot be written.
        """
        _write(self.file, text)

    def among(self, stream: Stream) -> Stream:
        """Return a stream with these answers beside those that its file gives itself."""
        given = stream.metadata.annotations.get(SETTLE_LOADS)
        return annotated(stream, SETTLE_LOADS, " ".join(answers for answers in (given, self.read()) if answers))


@dataclass(frozen=True)
class LocalReset:
    """The file of a reset that a person has asked for; one that was left behind has no effect, since it names its batch."""

    file: Path

    def read(self) -> str | None:
        """Return the request; None where nothing is asked for.

        Raises:
            AnswersUnreadable: if it cannot be read.
        """
        return _read(self.file, "The reset that was asked for", "ask again with `exactlyonce offsets reset`")

    def write(self, text: str) -> None:
        """Keep a request in the place of the one before.

        Raises:
            AnswersNotKept: if it cannot be written.
        """
        _write(self.file, text)

    def among(self, stream: Stream) -> Stream:
        """Return a stream with this request, where there is one, in place of one that its file gives itself."""
        return annotated(stream, RESET_OFFSETS, self.read() or "")


def _read(file: Path, what: str, what_to_do: str) -> str | None:
    try:
        return file.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None  # what is wrong with the folder itself, the status file reports
    except (OSError, UnicodeDecodeError) as problem:
        raise AnswersUnreadable(
            f"{what} in {file} cannot be read ({problem}); delete the file, and {what_to_do}."
        ) from None


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(file, text)
    except OSError as problem:
        raise AnswersNotKept(f"{file} cannot be written ({problem.strerror}); nothing was written.") from None


def annotated(stream: Stream, name: str, text: str) -> Stream:
    """Return a stream with an annotation; unchanged where that is empty. Performs no I/O."""
    if not text:
        return stream
    annotations: Mapping[str, str] = {**stream.metadata.annotations, name: text}
    metadata = stream.metadata.model_copy(update={"annotations": annotations})
    return stream.model_copy(update={"metadata": metadata})
