"""A world in which what is in quarantine is replayed beside the stream: by several at once, killed or frozen at any step."""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from exactlyonce.api.spec import Delivery
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from exactlyonce_spark.replay_records import RecordsFailed
from exactlyonce_spark.target import DeadLetter, ReplayTarget
from tests.simulation.keyed import HowKeyed
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process
from tests.simulation.spark_batch import letters_of
from tests.simulation.world import SimulatedWorld

MOST_REPLAYS = 12
IN_QUARANTINE = (FailureStatus.QUARANTINED, FailureStatus.REPLAYING)

HAZARDS_BESIDE = (
    frozenset[str](),
    frozenset({"retention"}),
    frozenset({"cut at commit", "strike at commit"}),
    frozenset({"restore", "lose checkpoint"}),
    frozenset({"truncate", "re-create", "start over"}),
    frozenset({"freeze driver", "lose driver", "failover", "database crash"}),
    frozenset({"leader moves", "brokers down", "suspend"}),
)
"""What strikes beside a poison record and drivers that are killed: beside all at once few batches would be quarantined."""


def scenario_of_replays(seed: int) -> Scenario:
    """Return what a seed draws, with each record once, a quarantine and few hazards."""
    drawn = Scenario.draw(random.Random(seed)).delivered(Delivery.EXACTLY_ONCE).with_quarantine()
    beside = HAZARDS_BESIDE[seed % len(HAZARDS_BESIDE)]
    return replace(drawn, operators=1, hazards=beside | {"kill driver", "poison"})


@dataclass(frozen=True)
class MemoryRecords:
    """A `RecordReader` of the topic; the poison record may fail once more."""

    world: ReplayWorld
    process: Process

    def rows(self, ranges: Ranges) -> Sequence[Hashable]:
        """Read the ranges, partition by partition."""
        rows: list[Hashable] = []
        for key, span in ranges.non_empty().items():
            self.world.simulation.step(f"read {key} {span} for a replay")
            poison = [
                (partition, offset)
                for partition, offset in sorted(self.world.poison)
                if partition == key and span.from_offset <= offset < span.until_offset
            ]
            if poison and not self.world.calm and self.world.random.random() < 0.3:
                raise RecordsFailed(f"{key} at {poison[0][1]} fails")
            records = self.world.topic.read(key, span)
            rows += [record for record in records if self.world.is_well_formed(self.process, record)]
        return rows

    def malformed(self, ranges: Ranges) -> Sequence[DeadLetter]:
        """Return the malformed records, where this world has some."""
        return letters_of(self.world, self.process, ranges)


class ReplayWorld(SimulatedWorld):
    """A world of a quarantine with replays. `outcomes` are those of replays that came to their end."""

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        super().__init__(seed, scenario or scenario_of_replays(seed))
        # An Upsert without a version is refused: a replay would put older values on newer ones, as the oracle then finds.
        if self.database.how_keyed is HowKeyed.OVERWRITES:
            self.database.how_keyed = HowKeyed.ADDS
        self.replays: list[Process] = []
        self.outcomes: list[ReplayOutcome] = []

    def strike_sink(self) -> None:
        """Somebody starts a replay, and it is killed or sleeps now and then."""
        dice = self.random
        if len(self.replays) < MOST_REPLAYS and dice.random() < 0.05 and self.in_quarantine():
            self.start_replay()
        for process in self.replays:
            if process.ended or dice.random() > 0.01:
                continue
            if dice.random() < 0.3:
                self.simulation.kill(process)
            else:
                process.frozen = not process.frozen
                if process.frozen:  # a landing of the stream ends its session, and meanwhile waits for it
                    self.journal.strike("freeze driver", process, lasts=True)
                else:
                    self.journal.end("freeze driver", process)

    def start_replay(self) -> None:
        """Start a replay of all that is in quarantine."""
        process = self.new_process(f"replay {len(self.replays) + 1}")
        self.replays.append(process)
        self.compactors.append(process)  # woken in the end, and asked whether its code could run
        self.simulation.spawn(process, process.name, partial(self._replay, process))

    def in_quarantine(self) -> tuple[FailureRow, ...]:
        """Return what the ledger has in quarantine."""
        return self.rows_with(IN_QUARANTINE)

    def rows_with(self, statuses: Collection[FailureStatus]) -> tuple[FailureRow, ...]:
        """Return the failed ranges that have these statuses, in whatever life of the stream they failed."""
        rows = self.database.tables.rows.values()
        return tuple(row for row in rows if isinstance(row, FailureRow) and row.status in statuses)

    def _replay(self, process: Process) -> None:
        wanted = [RangeKey.of(row) for row in self.in_quarantine()]
        pace = ReplayPace(self.random.randint(1, 5))
        claim, target = self.claim_of(process), self.target_of(process)
        replay = Replay(self.ledger(), claim, target, self.source_check(), MemoryRecords(self, process), pace)
        self.outcomes.append(replay.run(wanted))

    def claim_of(self, process: Process) -> ReplayClaim:
        """Return the claim of a replay."""
        return ReplayClaim(STREAM_ID, process.name)

    def target_of(self, process: Process) -> ReplayTarget:
        """Return what a replay writes to."""
        return self.target(0)
