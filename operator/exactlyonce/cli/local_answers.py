"""Answers for the loads of a stream of a file, kept beside its status: what an annotation is in a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exactlyonce.api.resource import SETTLE_LOADS, Stream
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
        try:
            return self.file.read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None  # what is wrong with the folder itself, the status file reports
        except (OSError, UnicodeDecodeError) as problem:
            raise AnswersUnreadable(
                f"The answers for loads in {self.file} cannot be read ({problem}); delete the file, and answer again with "
                "`exactlyonce settle-loads`."
            ) from None

    def write(self, text: str) -> None:
        """Keep answers in the place of those before.

        Raises:
            AnswersNotKept: if they cannot be written.
        """
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            replace_whole(self.file, text)
        except OSError as problem:
            raise AnswersNotKept(f"{self.file} cannot be written ({problem.strerror}); nothing was written.") from None

    def among(self, stream: Stream) -> Stream:
        """Return a stream with these answers beside those that its file gives itself."""
        annotations: Mapping[str, str] = stream.metadata.annotations
        text = " ".join(answers for answers in (annotations.get(SETTLE_LOADS), self.read()) if answers)
        if not text:
            return stream
        metadata = stream.metadata.model_copy(update={"annotations": {**annotations, SETTLE_LOADS: text}})
        return stream.model_copy(update={"metadata": metadata})
