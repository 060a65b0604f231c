"""Names of loads in a sink of two phases: whose they are, and which run of which task made them. Performs no I/O.

A name is used once. The stream's life tells apart the loads of a stream that was deleted and recreated; the epoch says whose an
open load is, so that only a later driver aborts it; the part is another one for each run of a task.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from exactlyonce.positions.ranges import BatchNumber, Epoch

MOST_CHARACTERS = 128
"""The most that every database with loads under labels takes."""

NO_EPOCH = Epoch(0)
"""A replay has none."""

_PRODUCT = "exactlyonce"
_NAME_CHARACTERS = 24
_DIGEST_CHARACTERS = 16
_OF_A_LIFE = re.compile(r"^exactlyonce:[^:]*:[^:]*:")
_REPLAY = re.compile(rf"exactlyonce:[^:]*:[^:]*:replay:[0-9a-f]{{{_DIGEST_CHARACTERS}}}")
_NUMBERS = re.compile(r"([0-9]{1,19}):([0-9]{1,19}):[0-9a-z-]+")
"""Of 64 bits: a sink lists the labels of others as well, who may have made theirs of what they have seen of ours."""


@dataclass(frozen=True)
class LoadLabels:
    """The labels of one stream in one life, which its token tells.

    `exactlyonce:NAME:DIGEST:EPOCH:BATCH:PART`, of letters, digits, `-`, `_` and `:`. The name is for people; the digest is of
    the whole stream id and the token, so that streams whose names look alike have other labels.
    """

    stream_id: str
    token: str

    @property
    def prefix(self) -> str:
        """What each label of this life begins with, and no other label does."""
        name = re.sub(r"[^A-Za-z0-9]+", "_", self.stream_id)[:_NAME_CHARACTERS]
        digest = hashlib.sha256(f"{self.stream_id}\n{self.token}".encode()).hexdigest()[:_DIGEST_CHARACTERS]
        return f"{_PRODUCT}:{name}:{digest}:"

    def label(self, epoch: Epoch, batch: BatchNumber, part: str) -> str:
        """Return the label of a part of a batch; `part` has digits, small letters and `-`."""
        label = f"{self.prefix}{epoch}:{batch}:{part}"
        assert self.epoch_of(label) == epoch, "what is told of a label can be read from it"
        assert len(label) <= MOST_CHARACTERS, "numbers of 64 bits and a tag fit beside the name"
        return label

    def epoch_of(self, label: str) -> Epoch | None:
        """Return the epoch that a label of this life names; None for any other label."""
        found = _NUMBERS.fullmatch(label.removeprefix(self.prefix)) if label.startswith(self.prefix) else None
        return None if found is None else Epoch(int(found[1]))


def batch_of(label: str) -> BatchNumber | None:
    """Return the batch that a label of this form names, of any life; None for a label of another form."""
    found = _NUMBERS.fullmatch(_OF_A_LIFE.sub("", label))
    return None if found is None else BatchNumber(int(found[2]))


def names_replay(name: str) -> bool:
    """Whether a name is a replay's (`ReplayLabels.name`), of whatever life of a stream."""
    return _REPLAY.fullmatch(name) is not None


@dataclass(frozen=True)
class ReplayLabels(LoadLabels):
    """The labels of one replay of a stream, which the replay's own token tells: `exactlyonce:NAME:DIGEST:replay:BATCH:PART`.

    No driver takes a load under one for its own, of whatever epoch.
    """

    replay: str

    @property
    def name(self) -> str:
        """What is of this replay alone: `exactlyonce:NAME:DIGEST:replay:DIGEST`."""
        return f"{self.prefix}replay:{self._digest}"

    @property
    def _digest(self) -> str:
        return hashlib.sha256(self.replay.encode()).hexdigest()[:_DIGEST_CHARACTERS]

    def label(self, epoch: Epoch, batch: BatchNumber, part: str) -> str:
        """Return the label of a chunk of a batch; a replay has no epoch."""
        label = f"{self.prefix}replay:{batch}:{self._digest}-{part}"
        assert self.epoch_of(label) is None, "no driver aborts it"
        assert len(label) <= MOST_CHARACTERS, "a number of 64 bits, a digest and a tag fit beside the name"
        return label
