"""What must be true, by counting unique records against what the world itself did.

The ledger is read for two things only: what the stream claims (where it stands, what it has given up), and when to stop. A
claim is never believed: rows must be there up to where it stands, and what it gave up must have been taken from the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

from exactlyonce.api.spec import Delivery
from exactlyonce.api.status import Phase
from exactlyonce.launch.last_words import Ending
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.rows import BatchRow, BatchStatus, FailureRow, FailureStatus
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions
from tests.simulation import former_life, manifest
from tests.simulation.adoption import DROPPED, adopts, wrong_after_adoption
from tests.simulation.answered_doubt import answers
from tests.simulation.chaos import Chaos
from tests.simulation.keyed import HowKeyed, expected
from tests.simulation.kinesis_chaos import KinesisChaos
from tests.simulation.kinesis_world import KinesisWorld
from tests.simulation.launcher import Driver
from tests.simulation.new_start import first_batch, starts_over
from tests.simulation.reasons import explains_halt, unexplained
from tests.simulation.repeatable import repeatable
from tests.simulation.resets import asks, note_commit, withdraws, wrong_with_kept
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.world import SimulatedWorld

TAIL = 120
MOST_STEPS = 40_000
MOST_ATTEMPTS = 1500
"""Two operators that both act for long make some hundred. Each may add a generation, which makes the next attempt slower."""


class Violation(AssertionError):
    """A record was lost or doubled, or the stream did not come to an end that is right."""


class Broken(Exception):
    """The code that ran is no protocol at all: a call that does not fit what it calls. No mutation may be found by that."""


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
    except Exception as problem:
        _require_code_that_runs(world)
        tail = "\n".join(world.simulation.trace[-TAIL:])
        raise Violation(f"seed {seed}: {problem!r}\n{world.scenario}\n{tail}") from problem
    finally:
        world.simulation.close()
    return world


def _require_code_that_runs(world: SimulatedWorld) -> None:
    ended = [driver.problem for drivers in world.drivers.values() for driver in drivers]
    ended += [actor.error for process in (*world.operators, *world.compactors) for actor in process.actors]
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
    chaos = KinesisChaos(world) if isinstance(world, KinesisWorld) else Chaos(world)
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
        idle += 1
        if _is_over(world):
            return
        if idle > 100:
            raise Violation("nothing happens and the stream is neither landed nor halted")
        chaos.calm_down()
    raise Violation(f"not at an end after {MOST_STEPS} steps")


def _require_few_attempts(world: SimulatedWorld) -> None:
    attempts = len(world.journal.attempts)
    if attempts > MOST_ATTEMPTS:
        raise Violation(f"the stream goes round in circles: {attempts} attempts")


def _is_over(world: SimulatedWorld) -> bool:
    """Whether nothing more is to come, once nobody can continue."""
    if _halted(world) and (starts_over(world) or adopts(world) or answers(world) or withdraws(world)):
        return False
    return world.draining or _halted(world)


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
    given_up = _given_up(world)
    _check_given_up(world, given_up)
    landed = _landed(world)
    expected_all = not _halted(world)
    in_doubt = world.in_doubt() if _halted(world) else set()
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
    stands = _stands(world)
    unknown = [record for record in counts if not _is_known(world, record, stands)]
    if unknown:
        raise Violation(f"rows beyond what landed: {unknown}")
    if world.stateful:
        _check_emitted(world, counts)
    if _halted(world) and not explains_halt(world):
        raise Violation(f"halted without a reason: {world.statuses.status.message}")
    limit = world.statuses.status.batch_limit
    if (
        not _halted(world)
        and limit is not None
        and Positions(_stands(world)).have_reached(Positions.from_json(limit.until))
    ):
        raise Violation(f"what was too large has landed, and {limit} still holds")
    without_reason = unexplained(world)
    if without_reason:
        raise Violation("; ".join(without_reason))


def _check_shown(world: SimulatedWorld, counts: Counter[Hashable]) -> None:
    """A stream that continues has shown its readers all that has landed; one that halted shows the rest when it continues."""
    if world.scenario.manifest and not _halted(world) and world.output.visible() != counts:
        raise Violation(f"readers do not see what has landed: {world.output.visible()} and not {counts}")
    if world.scenario.manifest and manifest.files_lost(world) and not world.journal.has_struck({"restore"}):
        raise Violation(f"files that count are gone: {manifest.files_lost(world)}")


def _check_lost_ledger(world: SimulatedWorld) -> None:
    """Nothing says any more how far the stream came: it has to halt; that nothing was doubled is checked at each commit."""
    if not _halted(world) or not explains_halt(world):
        raise Violation(f"the ledger was lost and the stream continued: {world.statuses.status.message}")


def _check_dropped_ledger(world: SimulatedWorld) -> None:
    if _halted(world) and not explains_halt(world):
        raise Violation(f"halted without a reason: {world.statuses.status.message}")
    found = [wrong] if (wrong := wrong_after_adoption(world, halted=_halted(world))) else unexplained(world)
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
        lost = Delivery.AT_MOST_ONCE in world.deliveries  # what was to be written once more, after older values, may be
        if how is HowKeyed.OVERWRITES and (lost or _halted(world)):
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
    first = _first_positions(world)
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


def _given_up(world: SimulatedWorld) -> set[Hashable]:
    """Records that the stream has not read: ranges that it says it lost, and what was before it began in a partition."""
    lost = {record for row in _lost_rows(world) for record in _records_of(world, row)} | _quarantined(world)
    if _halted(world):
        taken = [(key, span) for row in _taken_rows(world) for key, span in row.ranges.items()]
        lost |= {record for key, span in taken for record in _records_in(world, key, span)}
    start = _first_positions(world)
    before = {world.topic.record(key, offset) for key, until in start.items() for offset in range(until)}
    return (
        lost
        | (before - world.asked.again)
        | {record for record in world.never_asked() if not world.database.tables.target[record]}
    )


def _check_given_up(world: SimulatedWorld, given_up: set[Hashable]) -> None:
    """Nothing is given up but what retention took; with AtMostOnce also one batch each time that a driver ended badly."""
    _check_quarantined(world)
    gone = (
        world.taken
        | set(world.life_before or ())
        | world.skipped_by_start()
        | _quarantined(world)
        | world.asked.skipped
    )
    certain = {record for record in given_up - gone if Delivery.AT_MOST_ONCE not in world.deliveries_of(record)}
    there = {record for record in certain if not _stood_elsewhere(world, record)}
    if there:
        raise Violation(f"given up, and it was there to be read: {sorted(there, key=str)}")
    if Delivery.AT_MOST_ONCE not in world.deliveries:
        return
    # A batch from which retention took records while it was read is told as lost in whole: it may not be read again.
    by_retention = {row.batch for row in _lost_rows(world) if _records_of(world, row) & world.taken}
    by_crash = [row for row in _lost_rows(world) if row.batch not in by_retention]
    ended_badly = [drivers for drivers in world.drivers.values() if not any(_drained(driver) for driver in drivers)]
    restored = sum(
        fault.kind == "restore" for fault in world.journal.faults
    )  # each may take how the latest batch ended
    if len({row.batch for row in by_crash}) > len(ended_badly) + restored:
        raise Violation(
            f"{by_crash} are lost, {len(ended_badly)} drivers ended badly and the database was set back {restored} times"
        )
    if any(row.until_offset - row.from_offset > world.batch_records for row in by_crash):
        raise Violation(f"more than a batch of {world.batch_records} a partition is given up: {by_crash}")


def _quarantined(world: SimulatedWorld) -> set[Hashable]:
    """Records that the stream has continued after, and keeps among its failures; not those that a replay has landed."""
    return {record for status in HELD for row in _rows_of(world, status) for record in _records_of(world, row)}


def _check_quarantined(world: SimulatedWorld) -> None:
    """Only what the resource asks for is quarantined: a batch that reads the poison record, or in which drivers died."""
    if wrong := wrong_with_kept(world):
        raise Violation(wrong)
    rows = [
        row
        for status in (*HELD, FailureStatus.REPLAYED)
        for row in _rows_of(world, status)
        if not _records_of(world, row) <= world.asked.kept
    ]
    if rows and not world.scenario.quarantine:
        raise Violation(f"quarantined, and nobody asked for that: {rows}")
    _check_none_landed(world)
    if world.journal.has_struck({"kill driver", "strike at commit", "freeze driver", "lose driver", "too large"}):
        return
    for row in rows:
        batch = world.database.tables.rows["batch", STREAM_ID, row.batch]
        partition, offset = world.poison or (None, 0)
        read = batch.ranges.get(partition) if partition is not None else None
        if read is None or not read.from_offset <= offset < read.until_offset:
            raise Violation(f"batch {row.batch} is quarantined and has no record that fails it: {batch}")


def _check_none_landed(world: SimulatedWorld) -> None:
    """What is in quarantine may be replayed: no record of it has landed, in whatever life of the stream it was quarantined."""
    rows = [row for row in world.database.tables.rows.values() if isinstance(row, FailureRow)]
    for row in rows:
        records = _records_of(world, row) if row.status in HELD else ()
        landed = {
            record for record in records
            if world.database.tables.target[record] and world.deliveries_of(record) == {Delivery.EXACTLY_ONCE}
        }  # fmt: skip
        if landed:
            raise Violation(f"in quarantine, from where it may be replayed, and landed: {sorted(landed, key=str)}")


def _stood_elsewhere(world: SimulatedWorld, record: Hashable) -> bool:
    """Whether retention had taken another record, which stood where this one stands since the topic was recreated."""
    assert isinstance(record, tuple)
    _, partition, offset = record
    taken = {other[1:] for other in world.taken if isinstance(other, tuple)}
    return (partition, offset) in taken


def _drained(driver: Driver) -> bool:
    return driver.words is not None and driver.words.ending is Ending.DRAINED


def _refused(driver: Driver) -> bool:
    return driver.words is not None and driver.words.ending is Ending.REFUSED


def _lost_rows(world: SimulatedWorld) -> list[FailureRow]:
    return _rows_of(world, FailureStatus.LOST)


def _rows_of(world: SimulatedWorld, status: FailureStatus) -> list[FailureRow]:
    rows = [row for row in world.database.tables.rows.values() if isinstance(row, FailureRow)]
    of_this_life = [row for row in rows if row.batch >= first_batch(world) and id(row) not in world.failures_before]
    return [row for row in of_this_life if row.status is status]


def _taken_rows(world: SimulatedWorld) -> list[BatchRow]:
    """Batches that AtMostOnce took and of which nothing says how they ended; the next attempt records what they lost."""
    rows = [row for row in world.database.tables.rows.values() if isinstance(row, BatchRow)]
    return [row for row in rows if row.status is BatchStatus.TAKEN and row.batch >= first_batch(world)]


def _records_of(world: SimulatedWorld, row: FailureRow) -> set[Hashable]:
    return _records_in(world, row.partition, OffsetRange(row.from_offset, row.until_offset))


def _records_in(world: SimulatedWorld, key: Partition, span: OffsetRange) -> set[Hashable]:
    return world.records_in(key, span)


def _first_positions(world: SimulatedWorld) -> dict[Partition, int]:
    """Where the stream started: the first seed."""
    rows = [row for row in world.database.tables.rows.values() if isinstance(row, BatchRow)]
    rows = [row for row in rows if row.batch >= first_batch(world)]
    first = min(rows, key=lambda row: row.batch, default=None)
    starts = {} if first is None else first.ranges.starts
    return {key: world.records_before(key, start) for key, start in starts.items()}


def _landed(world: SimulatedWorld) -> dict[Partition, int]:
    """How many records of each partition the stream says that it has passed."""
    return {key: world.records_before(key, position) for key, position in _stands(world).items()}


def _stands(world: SimulatedWorld) -> dict[Partition, int]:
    """Where the stream says that it stands, also in partitions that it no longer reads."""
    rows = world.database.tables.rows.items()
    stands = {key[2]: value[0] for key, value in rows if key[0] in ("position", "retired")}
    if not world.edited:
        return stands
    return {key: max(stands.get(key, 0), world.edited.get(key, 0)) for key in {**stands, **world.edited}}


def _is_known(world: SimulatedWorld, record: Hashable, stands: dict[Partition, int]) -> bool:
    assert isinstance(record, tuple)
    if record[0] == "emitted":
        return world.stateful
    if Delivery.AT_LEAST_ONCE in world.deliveries_of(record):
        return True
    return world.is_landed(record, stands)


def _is_settled(world: SimulatedWorld) -> bool:
    """Whether everything that was produced has landed, or the stream has halted; asked at every step of the calm."""
    if _halted(world):
        return True
    # What is rarely true comes first.
    return world.has_landed_all(_stands(world)) and not world.is_unfinished() and not _taken_rows(world)


def _halted(world: SimulatedWorld) -> bool:
    return world.statuses.status.phase is Phase.HALTED


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
    passed = any(counts[row] for row in others) or _stood_elsewhere(world, world.topic.record(key, offset))
    if not passed:
        return False  # the stream has never gone past this offset, so nothing excuses that this record has not landed
    if world.topic.record(key, offset) in world.taken:
        return True
    return not any(counts[world.topic.record(key, later)] for later in range(offset + 1, world.topic.ends[key]))
