"""A world whose object log is soon full: it holds few failed ranges, or little at all, and records fail again and again.

The stream halts then. A person gives up what is in quarantine, has the log forget it, and starts the stream again.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import replace
from datetime import timedelta

from exactlyonce.api.ledger_retention import LossRetention
from exactlyonce.api.resource import Stream
from exactlyonce.api.spec import Delivery
from exactlyonce.api.status import Phase
from exactlyonce.connectors.object_log.bounds import BOUNDS, Bounds, LogFull
from exactlyonce.errors import OutcomeUnknown, Unreachable
from exactlyonce.ledger.giving_up import GivenUp, give_up_ranges
from exactlyonce.ledger.room import Room, TooMuchInQuarantine
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import Partition
from exactlyonce_spark.left_out import NotToBeQuarantined
from tests.simulation.claims import is_halted, records_of
from tests.simulation.log_database import LogDatabase
from tests.simulation.log_world import LogWorld
from tests.simulation.poison import LASTING
from tests.simulation.resource import KEEPS_NOTHING, STREAM_ID, RequestedSpec
from tests.simulation.scenario import Scenario

FULL = "full log"
"""No hazard: that the log was so full that a batch might not be quarantined, by the world's own count."""

MOST_PEOPLE = 12
MOST_POISON = 6
KEEPS_NO_LOSS = KEEPS_NOTHING.model_copy(update={"lost_failures": LossRetention.model_construct(age=timedelta(0))})
_HELD = (FailureStatus.QUARANTINED, FailureStatus.REPLAYING)
_UNASKED = (*_HELD, FailureStatus.LOST, FailureStatus.GIVEN_UP)

HAZARDS_BESIDE = (
    frozenset[str](),
    frozenset({"cut at commit", "strike at commit"}),
    frozenset({"lose driver", "freeze driver", "kill operator"}),
    frozenset({"retention", "lose checkpoint"}),
)
"""What strikes beside poison records and drivers that are killed."""


def scenario_of_full_logs(seed: int) -> Scenario:
    """Return what a seed draws, with a quarantine of batches or records, and few hazards."""
    drawn = Scenario.draw(random.Random(seed)).delivered(Delivery.EXACTLY_ONCE)
    drawn = drawn.with_bisection() if seed % 3 == 0 else drawn.with_quarantine()
    return replace(drawn, operators=1, hazards=HAZARDS_BESIDE[seed % 4] | {"kill driver", "poison"})


def drawn_bounds(dice: random.Random, partitions: int, widest: int) -> Bounds:
    """Draw the bounds of a log: a few failed ranges, where a batch with so many fits, or a few values altogether."""
    few = replace(BOUNDS, ended_ranges=dice.randint(1, 6), batch_ranges=dice.randint(10, 40))
    if dice.random() < 0.6:
        held = widest + dice.randint(0, 1)
        return replace(few, room=Room(held, held + widest + dice.randint(0, 2), dice.choice([1500, 100_000])))
    # What a stream with so many partitions cannot do without, and a little for what fails.
    values = 240 + 70 * partitions + (120 if widest > partitions else 0) + dice.randint(0, 80)
    return replace(
        few,
        values=int(values / 0.6),
        reserved=0.4,
        snapshot_values=dice.randint(50, 300),
        batch_ranges=10,
        ended_ranges=1,
    )


class FullLogWorld(LogWorld):
    """A world of logs that are full. `removed` are records of which the ledger says nothing since a person wanted it so."""

    archived_from_bytes = 300  # each archive is a row
    refused = (NotToBeQuarantined, TooMuchInQuarantine, LogFull)

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        self._dice = random.Random(f"full logs {seed}")
        super().__init__(seed, scenario or scenario_of_full_logs(seed))
        self._widest = MOST_POISON if self.scenario.bisect else len(self.topic.ends)
        self.bounds = drawn_bounds(self._dice, len(self.topic.ends), self._widest)
        self._snapshot_every = self._dice.randint(2, 12)
        self.errors = {**self.errors, **dict.fromkeys(self.refused, frozenset({FULL}))}
        self.records_to_produce = self._dice.randint(40, 80)
        self.most_chaos_steps *= 2
        self.removed: set[Hashable] = set()
        self.people = 0
        self.lets_go = False
        self.was_full = 0

    def strike_sink(self) -> None:
        """More records fail, and a person acts on a halt while things still go wrong."""
        super().strike_sink()
        if (
            not self.calm
            and self.poison
            and (len(self.poison) < MOST_POISON or not self.scenario.bisect)
            and self._dice.random() < 0.5
        ):
            self._poison_another()
        if not self.calm and self._dice.random() < 0.1:
            self.makes_room()

    def _poison_another(self) -> None:
        key = self._dice.choice(sorted(self.topic.ends))
        place: tuple[Partition, int] = (key, self.topic.ends[key] + self._dice.randint(0, 3))
        self.poison |= {place}
        self.poison_records |= {self.topic.record(*place)}
        self.poison_left = LASTING
        self.simulation.tell(f"what reads {key} at {place[1]} fails as well")

    def makes_room(self) -> bool:
        """Let a person act on a stream that has halted for a full log; whether one does."""
        halted = is_halted(self) and all(operator.ended for operator in self.operators)
        if not halted or self.people >= MOST_PEOPLE or not self._halts_for_room():
            return False
        self.people += 1
        self.journal.strike("made room")
        process = self.new_process(f"person {self.people}")
        self.compactors.append(process)
        # Until then nobody else acts on the halt.
        self.statuses.status = self.statuses.status.model_copy(update={"phase": Phase.PENDING})
        self.statuses.version += 1
        self.draining = False
        self.simulation.spawn(process, process.name, self._make_room)
        return True

    def has_no_way_out(self) -> bool:
        """Whether the stream ended halted for a full log, although a person did what the sentence says."""
        return is_halted(self) and self._halts_for_room()

    def _halts_for_room(self) -> bool:
        latest = self.journal.attempts[-1].number
        problems = [driver.problem for driver in self.drivers.get(latest, [])]  # type: ignore[call-overload] # an epoch
        problems += [failed.problem for failed in self.journal.failed_passes[-1:]]
        return any(isinstance(problem, self.refused) for problem in problems)

    def _make_room(self) -> None:
        """Give up what is in quarantine, have what was given up or lost kept no longer, and start the stream again."""
        told = GivenUp("alice", self.clock, "nothing can replay it")
        while True:
            try:
                give_up_ranges(self.ledger(), STREAM_ID, self._rows(*_HELD), told)
                break
            except (Unreachable, OutcomeUnknown):
                self.simulation.step("ask again")
            except self.refused as problem:
                self.wrong.append(f"a full log cannot be emptied: {problem!r}")
                return
        self.lets_go = True
        if all(operator.ended for operator in self.operators):
            self.start_operator(f"operator after person {self.people}")

    def resource(self, requested: RequestedSpec) -> Stream:
        """Return the resource, with the retention that a person asks for once a log was full."""
        found = super().resource(requested)
        if not self.lets_go:
            return found
        return found.model_copy(update={"spec": found.spec.model_copy(update={"ledger_retention": KEEPS_NO_LOSS})})

    def _rows(self, *statuses: FailureStatus) -> list[FailureRow]:
        rows = self.database.tables.rows.values()
        return [row for row in rows if isinstance(row, FailureRow) and row.status in statuses]

    def records_kept(self) -> set[Hashable]:
        """Return what a person has let go of; nothing of it has landed."""
        return super().records_kept() | {record for record in self.removed if not self.database.tables.target[record]}

    def wrong_since_commit(self) -> str | None:
        """Count by itself whether a log is full, and whether it holds more than it may."""
        room, held, kept = self.bounds.room, len(self._rows(*_HELD)), len(self._rows(*_UNASKED))
        wide, database = self._widest, self.database
        assert isinstance(database, LogDatabase)
        texts = sum(len(text) for text in {row.error for row in self._rows(*_UNASKED)})
        near = held + wide > room.held or kept + wide > room.kept or texts + 700 > room.error_bytes
        if near or database.values() > self.bounds.values * (1 - self.bounds.reserved) / 3:
            self.was_full += 1
            self.journal.strike(FULL)
        if self.lets_go:
            gone = self._rows(FailureStatus.LOST, FailureStatus.GIVEN_UP)
            self.removed |= {record for row in gone for record in records_of(self, row)}
        if kept > room.kept or database.values() > 2 * self.bounds.values:
            return f"the log holds {kept} ranges and {database.values()} values, and may hold {room.kept}, {self.bounds.values}"
        return super().wrong_since_commit()
