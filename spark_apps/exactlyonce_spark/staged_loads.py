"""The port to loads that commit as soon as they are submitted, such as those of a statement that reads files. No pyspark here.

Such a sink has no second phase. So a task writes the rows of a load into one file, nobody tells the sink before the ledger has
decided, and then the load's statement is sent once. docs/adr/0037 tells why a file, and not the label, keeps a late statement
out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from exactlyonce.errors import RefusedOutside, Unreachable
from exactlyonce.ledger.decided import Committable, StagedFile
from exactlyonce.positions.ranges import BatchNumber, Epoch

REMEMBERED_MILLISECONDS = 10 * 60 * 1000
"""A sink is taken to know a label for at least this long after its load has ended. docs/adr/0037 has what
the first such sink keeps, and how many."""


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """A file of this stream, in its present life, that is in the place for files; `epoch` is that of who wrote it."""

    file: StagedFile
    epoch: Epoch


class End(Enum):
    """Why nobody can tell yet how a load has ended."""

    NOT_FOUND = "not found"
    """The statement has not arrived, or the load has ended and was forgotten."""
    IN_DOUBT = "in doubt"
    """The sink has the load and does not know what became of it; neither waiting nor removing its file settles that."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """None of a load's rows counts, and none will: its statement has had its effect.

    `reason` is the sink's own. `is_refused`: the same rows would be cancelled again until a person has mended something.
    """

    reason: str = ""
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """So many rows of a load count. A sink may skip a file that goes while it is read, so they may be fewer than it had."""

    rows: int


Outcome: TypeAlias = Finished | Cancelled | End


class SubmissionRefused(RefusedOutside):
    """The sink answers that it does not take a load's statement: nothing of it is loaded, and nothing will be."""


class NotTakenNow(Unreachable):
    """The sink answers that it takes no load at present: nothing of this one is loaded, and nothing will be."""


class StagedLoads(ABC):
    """Loads whose rows wait in files, each in one. A file is there as a whole or not at all.

    One request alone writes under a name: a writer that got no answer writes the rows under another name, because that request
    may still be carried out once the file was removed.

    Each method raises Unreachable where the sink, or the store of the files, does not answer: what it was asked to do may then
    still happen, at any later time.
    """

    @abstractmethod
    def now_milliseconds(self) -> int:
        """Return the time by the sink's own clock, by which it forgets labels, in Unix milliseconds."""

    @abstractmethod
    def submit(self, committable: Committable) -> None:
        """Send the statement of a load, once: no connection, pool or proxy may send it again.

        Raises:
            SubmissionRefused, NotTakenNow: if the sink has answered that it does not take it; nothing is loaded, and nothing
                will be.
            Refused: if nothing was sent, because the stream as it is now cannot load the file.
        """

    @abstractmethod
    def outcome_of(self, committable: Committable) -> Outcome:
        """Wait until a load has ended, and return how; a state that is not final is waited on, and Unreachable ends that."""

    @abstractmethod
    def is_there(self, committable: Committable) -> bool:
        """Whether the file of a load is in its place."""

    @abstractmethod
    def remove(self, file: StagedFile) -> None:
        """Remove a file, if it is there; a load that reads it meanwhile is cancelled, or has read all of it."""

    @abstractmethod
    def another_label(self, batch: BatchNumber) -> str:
        """Return a label of this epoch that no load ever had."""

    @abstractmethod
    def waiting(self) -> Iterable[WaitingFile]:
        """Return the files of this stream, in its present life, that are in their place."""
