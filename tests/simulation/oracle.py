"""What must be true, by counting unique records against what the world itself did.

The ledger is read for two things only: what the stream claims (where it stands, what it has given up), and when to stop. A
claim is never believed: rows must be there up to where it stands, and what it gave up must have been taken from the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

from exactlyonce.api.spec import Delivery
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import Partition, Positions
from tests.simulation import former_life, manifest
from tests.simulation.adoption import DROPPED, adopts, wrong_after_adoption
from tests.simulation.answered_doubt import answers
from tests.simulation.chaos import Chaos
from tests.simulation.claims import (
    first_positions,
    is_halted,
    records_doubtful,
    records_passed,
    standing,
    taken_rows,
)
from tests.simulation.folder_chaos import FolderChaos, mends
from tests.simulation.folder_world import FolderWorld
from tests.simulation.full_log_world import FullLogWorld
from tests.simulation.given_up import check_given_up, records_given_up, stood_elsewhere
from tests.simulation.keyed import HowKeyed, expected
from tests.simulation.kinesis_chaos import KinesisChaos
from tests.simulation.kinesis_world import KinesisWorld
from tests.simulation.new_start import starts_over
from tests.simulation.reasons import explains_halt, unexplained
from tests.simulation.repeatable import repeatable
from tests.simulation.resets import asks, note_commit, withdraws
from tests.simulation.scenario import Scenario
from tests.simulation.violations import Broken, Violation
from tests.simulation.world import SimulatedWorld

__all__ = ["Broken", "Violation", "check", "run_seed"]

TAIL = 120
MOST_STEPS = 40_000
MOST_ATTEMPTS = 1500
"""Two operators that both act for long make some hundred. Each may add a generation, which makes the next attempt slower."""


def run_seed(
    seed: int, scenario: Scenario | None = None, kind: type[SimulatedWorld] = SimulatedWorld
) -> SimulatedWorld:
    """Run one seed of a kind of world to its end and check it.

    Raises:
        Violation: with the seed, the scenario and the last steps.
    """
    world = kind(seed, scenario)
    try:
        with repeatable(seed, world), world.patched():
            _run(world)
            check(world)
        _require_code_that_runs(world)
    except Broken:
        raise
    except Exception as problem:
        _require_code_that_runs(world)
        tail = "\n".join(world.simulation.trace[-TAIL:])
        raise Violation(f"seed {seed}: {problem!r}\n{world.scenario}\n{tail}") from problem
    finally:
        world.simulation.close()
    return world


def _require_code_that_runs(world: SimulatedWorld) -> None:
    ended = [driver.problem for drivers in world.drivers.values() for driver in drivers]
    ended += [
        actor.error for process in (*world.operators, *world.compactors, *world.cleaners) for actor in process.actors
    ]
    # A task's error is the cause of its driver's.
    causes = [cause for problem in ended for cause in _causes_of(problem)]
    wrong = next((cause for cause in causes if isinstance(cause, TypeError | AttributeError | NameError)), None)
    if wrong is not None:
        raise Broken(f"seed {world.seed}: {wrong!r}") from wrong


def _causes_of(problem: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and what it was raised for or while handling."""
    while problem is not None:
        yield problem
        problem = problem.__cause__ or problem.__context__


def _run(world: SimulatedWorld) -> None:
    manifest.write_former_output(world)
    chaos = _chaos_of(world)
    chaos.reset = asks
    for number in range(world.scenario.operators):
        world.start_operator(f"operator {number + 1}")
    if "former life" in world.scenario.hazards:
        former_life.start(world)
    world.database.on_commit = lambda: _check_no_double(world)
    chaos_steps = world.random.randint(world.most_chaos_steps // 4, world.most_chaos_steps)
    while world.simulation.steps < chaos_steps:
        chaos.between_steps()
        _require_single(world)
        if not world.simulation.run_one() and world.simulation.steps and not chaos.goes_on_after_rest():
            chaos.calm_down()
            break
    chaos.calm_down()
    idle, settled, seen = 0, False, (-1, -1)
    while world.simulation.steps < MOST_STEPS:
        _require_single(world)
        if seen != (seen := (world.database.version, world.statuses.version)):
            settled = _is_settled(world)
            _require_few_attempts(world)
        world.draining = world.draining or (settled and idle > 10)
        if world.simulation.run_one():
            idle = idle if settled else 0
            continue
        acts = _person_acts(world)
        if not acts and (world.draining or is_halted(world)):
            return
        idle = 0 if acts else idle + 1  # else what has landed in the former life would end the new one at once
        if idle > 100:
            raise Violation("nothing happens and the stream is neither landed nor halted")
        chaos.calm_down()
    raise Violation(f"not at an end after {MOST_STEPS} steps")


def _chaos_of(world: SimulatedWorld) -> Chaos:
    if isinstance(world, FolderWorld):
        return FolderChaos(world)
    return KinesisChaos(world) if isinstance(world, KinesisWorld) else Chaos(world)


def _require_few_attempts(world: SimulatedWorld) -> None:
    attempts = len(world.journal.attempts)
    if attempts > MOST_ATTEMPTS:
        raise Violation(f"the stream goes round in circles: {attempts} attempts")


def _person_acts(world: SimulatedWorld) -> bool:
    """Let a person act on a halt, and return whether one did: then the stream continues."""
    if not is_halted(world):
        return False
    if isinstance(world, FolderWorld) and mends(world):
        return True
    if isinstance(world, FullLogWorld) and world.makes_room():
        return True
    return starts_over(world) or adopts(world) or answers(world) or withdraws(world)


def check(world: SimulatedWorld) -> None:
    """Check the end of a run."""
    if "lose ledger" in world.struck and world.life_before is None:
        _check_lost_ledger(world)
    elif DROPPED in world.struck:
        _check_dropped_ledger(world)
    else:
        _check_life(world)


def _check_life(world: SimulatedWorld) -> None:
    """Check a stream that has a ledger: everything since it started, or since a person started it over."""
    counts = world.database.tables.target
    given_up = records_given_up(world)
    check_given_up(world, given_up)
    landed = records_passed(world)
    expected_all = not is_halted(world)
    in_doubt = (world.in_doubt() if is_halted(world) else set()) | records_doubtful(world)
    for key, end in world.topic.ends.items():
        upto = end if expected_all else landed.get(key, 0)
        for offset in range(upto):
            record = world.topic.record(key, offset)
            if counts[record] == 0 and _stands_for_another(world, key, offset):
                continue
            if record in in_doubt and counts[record] <= 1:
                continue
            _check_record(world, record, counts, record in given_up, key)
    _check_shown(world, counts)
    _check_by_key(world, counts)
    stands = standing(world)
    unknown = [record for record in counts if not _is_known(world, record, stands)]
    if unknown:
        raise Violation(f"rows beyond what landed: {unknown}")
    if world.stateful:
        _check_emitted(world, counts)
    _check_halt(world)
    limit = world.statuses.status.batch_limit
    if (
        not is_halted(world)
        and not world.edited  # the limit goes by what the ledger says, as it was edited
        and limit is not None
        and Positions(standing(world)).have_reached(Positions.from_json(limit.until))
    ):
        raise Violation(f"what was too large has landed, and {limit} still holds")
    without_reason = unexplained(world)
    if without_reason:
        raise Violation("; ".join(without_reason))


def _check_halt(world: SimulatedWorld) -> None:
    """A halt has a reason; and one for a full log is not the end, once a person has done what its sentence says."""
    if is_halted(world) and not explains_halt(world):
        raise Violation(f"halted without a reason: {world.statuses.status.message}")
    if isinstance(world, FullLogWorld) and world.has_no_way_out():
        raise Violation(f"halted for a full log, without a way out: {world.statuses.status.message}")


def _check_shown(world: SimulatedWorld, counts: Counter[Hashable]) -> None:
    """A stream that continues has shown its readers all that has landed; one that halted shows the rest when it continues."""
    visible = world.output.visible() - world.output.former if world.scenario.manifest else Counter()
    if world.scenario.manifest and not is_halted(world) and visible + manifest.not_taken_over(world) != counts:
        raise Violation(f"readers do not see what has landed: {visible} and not {counts}")
    if world.scenario.manifest and manifest.files_lost(world) and not world.journal.has_struck({"restore"}):
        raise Violation(f"files that count are gone: {manifest.files_lost(world)}")


def _check_lost_ledger(world: SimulatedWorld) -> None:
    """Nothing says any more how far the stream came: it has to halt; that nothing was doubled is checked at each commit."""
    if not is_halted(world) or not explains_halt(world):
        raise Violation(f"the ledger was lost and the stream continued: {world.statuses.status.message}")


def _check_dropped_ledger(world: SimulatedWorld) -> None:
    if is_halted(world) and not explains_halt(world):
        raise Violation(f"halted without a reason: {world.statuses.status.message}")
    found = [wrong] if (wrong := wrong_after_adoption(world, halted=is_halted(world))) else unexplained(world)
    if found:
        raise Violation("; ".join(found))


def _check_record(
    world: SimulatedWorld, record: Hashable, counts: Counter[Hashable], given_up: bool, key: Partition
) -> None:
    count = counts[record]
    deliveries = world.deliveries_of(record)
    may_be_there = count <= 1 or Delivery.AT_LEAST_ONCE in deliveries
    right = may_be_there and (given_up or count >= 1)
    if deliveries == {Delivery.EXACTLY_ONCE}:
        right = count == (0 if given_up else 1)
    if not right:
        raise Violation(f"{record} is there {count} times{' though it was given up' if given_up else ''}")


def _check_by_key(world: SimulatedWorld, counts: Counter[Hashable]) -> None:
    """What Upsert or Merge make of the same rows: each key holds what its latest record left there, or the sum of all.

    It finds what counting does not where a record may be there twice: with AtLeastOnce an older batch that is written once
    more, late, would put an older value on top of a newer one.
    """
    how = world.database.how_keyed
    if world.asked.applied:
        return  # what is read again counts twice for whoever adds, and sets keys back for a while
    if Delivery.AT_LEAST_ONCE in world.deliveries:
        if how is HowKeyed.ADDS:
            return  # whoever adds needs each record once
        # What was to be written once more, after older values, may be lost, or retention may have taken it.
        lost = Delivery.AT_MOST_ONCE in world.deliveries or world.journal.has_struck({"retention"})
        if how is HowKeyed.OVERWRITES and (lost or is_halted(world)):
            return  # a batch that is written again puts older values first, and the stream halted before it wrote the rest
    held = world.database.tables.by_key
    wrong = {key: (held.get(key), value) for key, value in expected(counts, how).items() if held.get(key) != value}
    if wrong:
        raise Violation(f"{how.value}: keys hold what is not the latest (held, expected): {wrong}")


def _require_single(world: SimulatedWorld) -> None:
    if world.doubled or world.wrong:
        raise Violation("; ".join([*world.wrong, *(f"doubled: {record}" for record in world.doubled)]))


def _check_no_double(world: SimulatedWorld) -> None:
    """After every commit, so that the trace ends where the double was made."""
    note_commit(world)
    if world.deliveries == {Delivery.AT_LEAST_ONCE}:
        return
    if wrong := world.wrong_since_commit():
        world.wrong.append(wrong)
    if world.doubled:
        return
    more = [record for record, count in world.database.tables.target.items() if count > 1]
    world.doubled = [record for record in more if Delivery.AT_LEAST_ONCE not in world.deliveries_of(record)]


def _check_emitted(world: SimulatedWorld, counts: Counter[Hashable]) -> None:
    """What a stateful query emits belongs to a batch, not to records: once for every batch that landed."""
    rows = world.database.tables.rows
    landed = [
        row for key, row in rows.items() if key[0] in ("batch", "expired batch") and row.status is BatchStatus.LANDED
    ]
    first = first_positions(world)
    for row in sorted(landed, key=lambda row: row.batch):
        # Counted by the world's own offsets: everything from the start of each partition to where the batch ends.
        total = sum(end - first.get(key, 0) for key, end in row.ranges.ends.items())
        emitted = {key: count for key, count in counts.items() if _is_emitted_by(key, row.batch)}
        if emitted != {("emitted", row.batch, total, total): 1}:
            raise Violation(f"batch {row.batch} emitted {emitted}, and {total} records were to be counted by then")
    numbers = [row.batch for row in landed]
    # From the first landed batch on the state forbids another generation, so the numbers have no holes.
    missing = [number for number in range(min(numbers, default=0), max(numbers, default=0)) if number not in numbers]
    if missing:
        raise Violation(f"batches {missing} never landed")


def _is_emitted_by(record: Hashable, batch: int) -> bool:
    return isinstance(record, tuple) and record[:2] == ("emitted", batch)


def _is_known(world: SimulatedWorld, record: Hashable, stands: dict[Partition, int]) -> bool:
    assert isinstance(record, tuple)
    if record[0] == "emitted":
        return world.stateful
    if Delivery.AT_LEAST_ONCE in world.deliveries_of(record):
        return True
    return world.is_landed(record, stands)


def _is_settled(world: SimulatedWorld) -> bool:
    """Whether everything that was produced has landed, or the stream has halted; asked at every step of the calm."""
    if is_halted(world):
        return True
    # What is rarely true comes first.
    return world.has_landed_all(standing(world)) and not world.is_unfinished() and not taken_rows(world)


def _stands_for_another(world: SimulatedWorld, key: Partition, offset: int) -> bool:
    """Whether a record stands where a lost one stood that the stream had passed, and it had no chance to notice.

    It had passed one that landed, or one that retention had taken before it was read.

    It has one when it reads what follows in the log that came after: then it must halt before any of that lands. Of what
    retention has taken before anybody looked, nobody can tell that it was another record.
    """
    if offset not in world.topic.former.get(key, ()):
        return False
    counts = world.database.tables.target
    others = [row for row in counts if isinstance(row, tuple) and row[1:] == (key.key, offset)]
    passed = any(counts[row] for row in others) or stood_elsewhere(world, world.topic.record(key, offset))
    if not passed:
        return False  # the stream has never gone past this offset, so nothing excuses that this record has not landed
    if world.topic.record(key, offset) in world.taken:
        return True
    return not any(counts[world.topic.record(key, later)] for later in range(offset + 1, world.topic.ends[key]))
