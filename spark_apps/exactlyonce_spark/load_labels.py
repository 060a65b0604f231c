"""Names of loads in a sink of two phases: whose they are, and which run of which task made them. Performs no I/O.

A name is used once. The stream's life tells apart the loads of a stream that was deleted and recreated; the epoch says whose an
open load is, so that only a later driver aborts it; the part is another one for each run of a task.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from exactlyonce.ledger.life import part_of_life
from exactlyonce.positions.ranges import BatchNumber, Epoch

MOST_CHARACTERS = 128
"""The most that every database with loads under labels takes."""

NO_EPOCH = Epoch(0)
"""A replay has none."""

_PRODUCT = "exactlyonce"
_NAME_CHARACTERS = 24
_DIGEST_CHARACTERS = 16
_OF_A_LIFE = re.compile(r"^exactlyonce:[^:]*:[^:]*:")
_REPLAYS = re.compile(r"exactlyonce:[^:]*:[^:]*:replay(:.*)?")
_NUMBER_OF_REPLAY = re.compile(r"exactlyonce:[^:]*:[^:]*:replay:([0-9]{1,19})")
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
        digest = hashlib.sha256(f"{self.stream_id}\n{part_of_life(self.token)}".encode()).hexdigest()[
            :_DIGEST_CHARACTERS
        ]
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


def prefix_of(label: str | None) -> str | None:
    """Return what all labels of a life begin with, without the colon at its end; None for a label of another form."""
    found = _OF_A_LIFE.match(label or "")
    return None if found is None else found[0].removesuffix(":")


def names_replay(name: str) -> bool:
    """Whether a name is of replays (`ReplayLabels.name`), of whatever life of a stream."""
    return _REPLAYS.fullmatch(name) is not None


def number_of_replay(label: str | None) -> int | None:
    """Return the number that the label of a replay's load names, of any life; None for a label of another form."""
    found = _NUMBER_OF_REPLAY.fullmatch(label or "")
    return None if found is None else int(found[1])


@dataclass(frozen=True)
class ReplayLabels(LoadLabels):
    """The labels of the replays of a stream in one life: `exactlyonce:NAME:DIGEST:replay:NUMBER`.

    The number counts the loads that replays have decided, so the sink has a load under the label of each one: a ledger that
    has forgotten some shows by that (docs/adr/0058). No driver takes a load under one for its own, of whatever epoch.
    """

    @property
    def name(self) -> str:
        """What is of the replays of this life alone: `exactlyonce:NAME:DIGEST:replay`."""
        return f"{self.prefix}replay"

    def label(self, epoch: Epoch, batch: BatchNumber, part: str) -> str:
        """Return the label of the load with this number, as `part` has it; a replay has no epoch."""
        label = f"{self.name}:{part}"
        assert number_of_replay(label) == int(part), "what is told of a label can be read from it"
        assert self.epoch_of(label) is None, "no driver aborts it"
        assert len(label) <= MOST_CHARACTERS, "a number of 64 bits fits beside the name"
        return label
