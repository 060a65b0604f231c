"""A person sets the positions of a stream that is suspended or has halted: what is asked for, and what has to come of it.

What lands again by that is no double. So the rows of the records that are to be read again are set aside in the very commit
that moves the positions back, if they are those that were asked for, and not before: each record then has to be there once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from datetime import UTC, datetime

from exactlyonce.api.resource import RESET_OFFSETS
from exactlyonce.api.status import Phase
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.rows import FailureRow
from exactlyonce.positions.ranges import PARTITION_END, BatchNumber, OffsetRange, Partition, Positions
from exactlyonce.reconcile.asked_reset import AskedReset
from tests.simulation.asked_resets import RESET
from tests.simulation.kinesis_world import KinesisWorld
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.world import SimulatedWorld

_WHO, _WHEN = "jane", datetime(2026, 1, 1, tzinfo=UTC)
_MOST_RESETS = 4
_RESTS = (Phase.SUSPENDED, Phase.HALTED)
_SETS_BACK = frozenset(
    {
        "restore",
        "failover",
        "lose ledger",
        "drop ledger",
        "start over",
        "edited by hand",
        "former life",
        "database crash",
    }
    | {"topics changed", "delivery changed", "truncate", "re-create", "unlisted"}
)
"""What takes back what the ledger has committed, or what its positions mean: the rows that were set aside would come back."""


def with_resets(drawn: Scenario) -> Scenario:
    """Return the scenario with a person who resets the positions while the stream is suspended."""
    plain = replace(drawn, stateful=False, manifest=False)
    return replace(plain, hazards=(drawn.hazards - _SETS_BACK) | {RESET, "suspend", "kill driver"})


def asks(world: SimulatedWorld) -> None:
    """The stream rests, and a person asks for other positions, perhaps by what they have seen a while ago."""
    asked = world.asked
    if RESET not in world.scenario.hazards:
        return
    _let_one_operator_sleep(world)
    if world.statuses.status.phase not in _RESTS or asked.times >= _MOST_RESETS:
        return
    if asked.look is None or world.random.random() < 0.8:
        asked.look = _standing(world)
    if asked.look is None or not world.strikes(RESET, 0.6):
        return
    life, batch, before = asked.look
    after = Positions({key: _target(world, key, at) for key, at in before.items()})
    wanted = AskedReset(
        life, batch, before, after, world.random.random() < 0.5, _WHO, _WHEN, f"the {asked.times + 1}. time"
    )
    asked.pending.append(wanted)
    asked.times += 1
    _annotate(world, wanted.to_json())
    world.simulation.tell(f"a person asks for a reset from {before} to {after} after batch {batch}")


def _let_one_operator_sleep(world: SimulatedWorld) -> None:
    """Of two operators one may sleep between its decision and its act, while the other continues."""
    if len(world.operators) > 1 and world.random.random() < 0.3:
        sleeps = world.random.choice([None, *world.operators])
        for operator in world.operators:
            operator.frozen = operator is sleeps


def withdraws(world: SimulatedWorld) -> bool:
    """A stream that has halted because it cannot be reset continues where it stands; whether that was done."""
    if RESET not in world.scenario.hazards or not any(name == RESET_OFFSETS for name, _ in world.annotations):
        return False
    if "are not reset" not in world.statuses.status.message or any(not operator.ended for operator in world.operators):
        return False
    world.journal.strike(RESET)
    _annotate(world, None)
    world.draining = False
    world.start_operator("operator of the withdrawal")
    return True


def note_commit(world: SimulatedWorld) -> None:
    """Set aside what is to land again, where this very commit has done what was asked for."""
    asked, now = world.asked, _standing(world)
    stood, asked.stood = asked.stood, Positions() if now is None else now[2]
    landed, asked.batch = asked.batch, None if now is None else now[1]
    if now is None or landed == now[1]:
        return
    note = world.database.tables.rows["batch", STREAM_ID, now[1]].note
    done = [one for one in asked.pending if stood == one.before and now[2] == one.after and one.message in note]
    asked.pending = [one for one in asked.pending if one.batch >= now[1]]
    for wanted in done[:1]:
        asked.applied += 1
        for key in wanted.before:
            _apply(world, wanted, key)


def _apply(world: SimulatedWorld, wanted: AskedReset, key: Partition) -> None:
    asked, before, after = world.asked, wanted.before[key], wanted.after[key]
    records = world.records_in(key, OffsetRange(min(before, after), max(before, after)))
    if after < before:
        asked.again |= records
        asked.skipped -= records
        asked.kept -= records
        there = Counter(record for record in records if world.database.tables.target[record] > 0)
        world.database.tables.target = world.database.tables.target - there  # which leaves no zeros behind
        # What retention takes while it has its row is not noted as taken.
        world.taken |= records & _held_no_more(world, key)
    else:
        asked.again -= records
        asked.skipped |= records
        asked.kept |= records if wanted.keeps_skipped else set()


def _held_no_more(world: SimulatedWorld, key: Partition) -> set[Hashable]:
    """Return the records of a partition that retention took between a person's question and what came of it, or before."""
    if isinstance(world, KinesisWorld):
        return world.records_in(key, OffsetRange(0, PARTITION_END)) & world.stream.gone
    return world.records_in(key, OffsetRange(0, world.topic.earliest(key)))


def wrong_with_kept(world: SimulatedWorld) -> str | None:
    """Return which records were to be kept and are not in quarantine, or which are there and nobody asked to keep them."""
    rows = [row for row in world.database.tables.rows.values() if isinstance(row, FailureRow)]
    held = [row for row in rows if row.status in HELD]
    there = {
        record
        for row in held
        for record in world.records_in(row.partition, OffsetRange(row.from_offset, row.until_offset))
    }
    missing = {record for record in world.asked.kept - there if not world.database.tables.target[record]}
    missing -= world.records_kept() | world.taken  # to a replay it was malformed, or retention was faster
    return f"skipped, to be kept, and not in quarantine: {sorted(missing, key=str)}" if missing else None


def _standing(world: SimulatedWorld) -> tuple[str, BatchNumber, Positions] | None:
    """Where the stream stands by the ledger's own rows, its life and its landed batch."""
    rows = world.database.tables.rows
    stream = rows.get(("stream", STREAM_ID))
    if stream is None or stream.landed_batch is None:
        return None
    return (
        stream.life,
        stream.landed_batch,
        Positions({key[2]: row[0] for key, row in rows.items() if key[0] == "position"}),
    )


def _target(world: SimulatedWorld, key: Partition, at: int) -> int:
    dice = world.random.random()
    if at == PARTITION_END or dice < 0.3:
        return at
    if isinstance(world, KinesisWorld):
        puts = [put for (life, shard), puts in world.stream.puts.items() if life == world.stream.life for put in puts
                if shard == key.key]  # fmt: skip
        places = [0, *(put.position for put in puts)]
    else:
        places = list(range(world.topic.earliest(key), world.topic.ends[key] + 1))
    return world.random.choice([*places, at])


def _annotate(world: SimulatedWorld, text: str | None) -> None:
    kept = tuple((name, value) for name, value in world.annotations if name != RESET_OFFSETS)
    world.annotations = kept if text is None else (*kept, (RESET_OFFSETS, text))
    if world.statuses.status.phase is Phase.HALTED:
        world.statuses.status = world.statuses.status.model_copy(update={"phase": Phase.PENDING})
        world.statuses.version += 1
