"""Chunks of replays that are decided in a sink of two phases and not settled yet. Performs no I/O but the ledger's.

A decision is an entry of the replay's own, beside what replays made visible, and the rows of its ranges say so: they stay
Replaying, and nobody takes them, puts them back or gives them up. The load that it names is committed by whoever comes first,
this replay, the next one or a driver; what the sink says of it then settles the ranges. docs/adr/0053.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from exactlyonce.bounded_json import MOST_VALUES, parse_json, values_in
from exactlyonce.errors import Refused, TransactionTooLong, Unreachable
from exactlyonce.ledger.decided import Answer, Committable, DecidedBatch
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.races import rerun_after_lost_race, rerun_while_unknown
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import Ranges

_PREFIX = "decided-"
"""What the names of decisions begin with; those of files that replays have landed begin with `replay-`."""

COUNT_ENTRY = "count"
"""The name of the entry with the number of loads that replays of the stream have decided; it is never taken away.

The sink has that number with the rows of each load. So a ledger that went back to before a decision shows. docs/adr/0058.
"""


class AnotherDecided(Unreachable):
    """Another replay of the stream has decided a load meanwhile; nothing was decided, and it can be tried again."""


class NoSuchDecision(Refused):
    """The ledger has no decision of a replay with such a load; nothing was changed."""


@dataclass(frozen=True, slots=True)
class ReplayDecision:
    """What is to be committed of one chunk: the load, in `decided`, and the token of the replay that decided it.

    One load has all rows of the chunk, so that what became of it is told of all its ranges at once. `records` is how many the
    chunk has, which positions alone need not say; `number` counts what replays of the stream have decided (`COUNT_ENTRY`),
    and is 0 of a release that did not.
    """

    replay: str
    decided: DecidedBatch
    records: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        """Require one load."""
        if len(self.decided.committables) != 1:
            raise ValueError("a decision of a replay that has not one load")

    @property
    def load(self) -> Committable:
        """The load."""
        return self.decided.committables[0]

    @property
    def name(self) -> str:
        """The name of its entry, which no other one has: that of a label."""
        return f"{_PREFIX}{self.load.label}"

    @property
    def ranges(self) -> Ranges:
        """What the load has rows of."""
        return self.load.ranges

    @property
    def keys(self) -> tuple[RangeKey, ...]:
        """What tells its ranges from the others of the stream."""
        batch = self.decided.batch
        return tuple(RangeKey(batch, key, offsets.from_offset) for key, offsets in self.ranges.items())

    def holds(self, row: FailureRow) -> bool:
        """Whether the row is of its ranges, and still waits for what becomes of the load.

        The stream may have been set back into a range meanwhile, so that the rest of it is Superseded.
        """
        offsets = self.ranges.get(row.partition)
        is_within = (
            row.batch == self.decided.batch
            and offsets is not None
            and offsets.from_offset <= row.from_offset
            and row.until_offset <= offsets.until_offset
        )
        return is_within and row.is_decided and row.replay == decided_by(self.replay)

    def answered(self, answer: Answer) -> ReplayDecision:
        """Return it with what a person says of the load."""
        load = replace(self.load, answer=answer)
        return replace(self, decided=replace(self.decided, committables=(load,)))

    def to_json(self) -> str:
        """Render it; equal ones give equal texts."""
        decided = json.loads(self.decided.to_json())
        told = {"replay": self.replay, "decided": decided, "records": self.records, "number": self.number}
        return json.dumps(told, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ReplayDecision:
        """Parse what `to_json` renders.

        Raises:
            ValueError: if it is anything else.
        """
        found = parse_json(text)
        try:
            decided = DecidedBatch.from_json(json.dumps(found["decided"]))
            return cls(str(found["replay"]), decided, int(found["records"]), int(found.get("number", 0)))
        except (KeyError, TypeError) as problem:
            raise ValueError("JSON that is no decision of a replay") from problem


def decided_by(token: str) -> str:
    """Return what the row of a range names once the replay with this token has decided it."""
    return f"{token}{FailureRow.DECIDED}"


def decisions_in(replayed: Mapping[str, str]) -> tuple[ReplayDecision, ...]:
    """Return the decisions among what replays have left in the ledger; a stream whose sink was changed may have files, too."""
    return tuple(ReplayDecision.from_json(text) for name, text in replayed.items() if name.startswith(_PREFIX))


def made_visible(replayed: Mapping[str, str]) -> Mapping[str, str]:
    """Return what of that is no decision: what replays have landed in files.

    A stream that had a sink of two phases before has both: its decisions stay until that sink is named again.
    """
    return {name: text for name, text in replayed.items() if not (name.startswith(_PREFIX) or name == COUNT_ENTRY)}


def take_visible(transaction: LedgerTransaction, stream_id: str) -> Mapping[str, str]:
    """Return what replays have landed in files, and forget it; decisions stay."""
    taken = transaction.take_replayed(stream_id)
    visible = made_visible(taken)
    for name in taken.keys() - visible.keys():
        transaction.write_replayed(stream_id, name, taken[name])
    return visible


def record_decision(
    transaction: LedgerTransaction, stream_id: str, decision: ReplayDecision, seen: Collection[str]
) -> None:
    """Record what is to be committed, and count it, in the transaction that compares the claim and marks the ranges.

    `seen` are the names of the decisions of which this replay knows that their loads are not committed any more.

    Raises:
        AnotherDecided: if another replay has decided a load since the number was read, or has one that is not settled.
        TransactionTooLong: if the record could not be read again; a chunk of fewer ranges can.
    """
    standing = standing_of(transaction.read_replayed(stream_id))
    if decision.number != standing.count + 1 or {it.name for it in standing.decisions} - set(seen):
        raise AnotherDecided(
            f"Another replay of {stream_id} has decided a load meanwhile, so load {decision.number} was not decided; it is "
            "tried again behind that one."
        )
    transaction.write_replayed(stream_id, COUNT_ENTRY, str(decision.number))
    text = decision.to_json()
    if values_in(text, MOST_VALUES) + 1 > MOST_VALUES:  # and a person's answer
        raise TransactionTooLong(f"A chunk of {len(decision.ranges)} ranges is too many for the ledger's record of it.")
    transaction.write_replayed(stream_id, decision.name, text)


@dataclass(frozen=True, slots=True)
class Standing:
    """How many loads the replays of a stream have decided, and which of them are not settled."""

    count: int
    decisions: tuple[ReplayDecision, ...]


def standing_of(replayed: Mapping[str, str]) -> Standing:
    """Return how replays stand by what they have left in the ledger.

    Raises:
        ValueError: if an entry is not what this module writes.
    """
    return Standing(int(replayed.get(COUNT_ENTRY, "0")), decisions_in(replayed))


@rerun_after_lost_race
def read_standing(ledger: Ledger, stream_id: str) -> Standing:
    """Return how the replays of a stream stand."""
    with ledger.transaction() as transaction:
        return standing_of(transaction.read_replayed(stream_id))


@rerun_after_lost_race
def read_decisions(ledger: Ledger, stream_id: str) -> tuple[ReplayDecision, ...]:
    """Return the decisions of a stream's replays that are not settled."""
    with ledger.transaction() as transaction:
        return decisions_in(transaction.read_replayed(stream_id))


@rerun_while_unknown
@rerun_after_lost_race
def settle_decision(ledger: Ledger, stream_id: str, decision: ReplayDecision, *, is_committed: bool) -> None:
    """Record what became of a decided load for good: its ranges have landed, or are in quarantine again. Safe to repeat.

    A decision that is gone, or has another answer by now, was settled by somebody else, or is to be looked at again. Ranges
    that the stream reads again itself stay Superseded whatever became of the load.

    Raises:
        CommitOutcomeUnknown: if the outcome stayed unknown; whoever looks at the decision next settles it.
    """
    with ledger.transaction() as transaction:
        transaction.lock_stream(stream_id, Lock.UPDATE)
        if transaction.read_replayed(stream_id).get(decision.name) != decision.to_json():
            return
        held = transaction.read_failures(stream_id, FailureStatus.REPLAYING)
        changed = tuple(_settled(row, decision, is_committed=is_committed) for row in held if decision.holds(row))
        if changed:
            transaction.write_failures(stream_id, changed)
        _replace(transaction, stream_id, decision, None)


def _settled(row: FailureRow, decision: ReplayDecision, *, is_committed: bool) -> FailureRow:
    if is_committed:
        return replace(row, status=FailureStatus.REPLAYED, replay=decision.replay)
    return replace(row, status=FailureStatus.QUARANTINED, replay="")


@rerun_while_unknown
@rerun_after_lost_race
def answer_decision(ledger: Ledger, stream_id: str, label: str, answer: Answer) -> None:
    """Record what a person has found of the load of a replay; it counts only where the sink does not know the load.

    Raises:
        NoSuchDecision: if no replay has decided such a load, or what became of it is known.
        CommitOutcomeUnknown: if the outcome stayed unknown; repeat it.
    """
    with ledger.transaction() as transaction:
        transaction.lock_stream(stream_id, Lock.UPDATE)
        found = {it.load.answered_as: it for it in decisions_in(transaction.read_replayed(stream_id))}
        if label not in found:
            named = ", ".join(sorted(found)) or "none"
            raise NoSuchDecision(
                f"No replay of {stream_id} has decided a load {label} that waits for an answer (those that wait: {named}), so "
                "nothing was changed."
            )
        _replace(transaction, stream_id, found[label], found[label].answered(answer))


def _replace(
    transaction: LedgerTransaction, stream_id: str, before: ReplayDecision, after: ReplayDecision | None
) -> None:
    """Put a decision in the place of another one, or take it away; a ledger forgets all such entries or none."""
    for name, text in transaction.take_replayed(stream_id).items():
        left = text if name != before.name else None if after is None else after.to_json()
        if left is not None:
            transaction.write_replayed(stream_id, name, left)


ASKED_FIRST = "decided by a replay; the next one asks the sink first what became of its load"
"""What a dry run shows of a range that is decided: nothing is asked of the source for it."""


def why_decided(rows: Sequence[FailureRow]) -> tuple[str, ...]:
    """Return a sentence for each range that a replay has decided, whose load has not been settled."""
    return tuple(
        f"The range {RangeKey.of(row)} is decided by a replay, and the sink has not said what became of its load: nothing else "
        "may take it before that. Run a replay into that sink, which asks it first."
        for row in rows
        if row.is_decided
    )
