"""A world whose source is a data stream and in which what is in quarantine is replayed, divided by the product's own divider.

Positions count no records there, so the product reads a range to find out where a part of it ends, and reads that part once
more. Between the two the stream may lose what has expired, or be deleted and created again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from exactlyonce.connectors.kinesis.positions import position_of_record
from exactlyonce.connectors.kinesis.reading import read_range
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.connectors.kinesis.dividing import ShardDivider
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_outcome import ReplayPace
from exactlyonce_spark.replay_records import RecordsFailed
from exactlyonce_spark.target import DeadLetter
from tests.simulation.kinesis_spark import record_of
from tests.simulation.kinesis_world import KinesisWorld
from tests.simulation.replay_world import ReplayWorld
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process
from tests.simulation.source import TOPIC


@dataclass(frozen=True)
class ShardRecords:
    """A `RecordReader` of shards, as the tasks of a replay read them; the poison record may fail once more."""

    world: KinesisReplayWorld

    def rows(self, ranges: Ranges) -> Sequence[Hashable]:
        """Read the ranges, shard by shard."""
        world = self.world
        rows: list[Hashable] = []
        for key, span in ranges.non_empty().items():
            world.simulation.step(f"read {key} {span} for a replay")
            users = read_range(world.client(), TOPIC, str(key.key), span.from_offset, span.until_offset)
            found = [record_of(user.data) for user in users]
            poison = [place for place in world.poison if world.stream.record(*place) in found]
            if poison and not world.calm and world.random.random() < 0.3:
                raise RecordsFailed(f"{key} at {poison[0][1]} fails")
            rows += found
        return rows

    def malformed(self, ranges: Ranges) -> Sequence[DeadLetter]:
        """Return nothing: each record fits."""
        return ()


class KinesisReplayWorld(ReplayWorld, KinesisWorld):
    """A world of a data stream with replays."""

    def _fitting(self, scenario: Scenario) -> Scenario:
        """Return the scenario with rows in the ledger's own database, since files take another target, and often retention."""
        fitting = replace(super()._fitting(scenario), manifest=False).with_quarantine()
        if self.seed % 2 == 0 or "restore" in fitting.hazards:
            return fitting
        return replace(fitting, hazards=fitting.hazards | {"retention"})

    def strike_sink(self) -> None:
        """Somebody starts a replay, and what waits for one expires before it comes or while it reads."""
        super().strike_sink()
        waiting = [row for row in self.in_quarantine() if str(row.partition.key) in self.stream.shards]
        if waiting and not self.stream.is_missing and self.strikes("retention", 0.1):
            self._expire_a_part(self.random.choice(waiting))

    def _expire_a_part(self, row: FailureRow) -> None:
        """Let the oldest records of a shard pass their retention, up to one of a range that waits, and not its last one."""
        shard = str(row.partition.key)
        held = [int(record["SequenceNumber"]) for record in self.stream.shards[shard].records if record is not None]
        within = [number for number in held if position_of_record(number) < row.until_offset]
        if len(within) < 2:
            return
        count = self.random.randint(1, len(within) - 1)
        self.stream.expire(count, shard)
        oldest = position_of_record(held[count])
        self.stream.gone |= {put.record for put in self.stream.of(row.partition) if put.position < oldest}
        self.struck_by("retention", f"{count} records of {shard} have expired before a replay")

    def _replay(self, process: Process) -> None:
        wanted = [RangeKey.of(row) for row in self.in_quarantine()]
        pace = ReplayPace(self.random.randint(1, 5))
        reader, divider = ShardRecords(self), ShardDivider(self.client, TOPIC)
        replay = Replay(
            self.ledger(), self.claim_of(process), self.target_of(process), self.source_check(), reader, pace, divider
        )  # fmt: skip
        self.outcomes.append(replay.run(wanted))
