"""The object log: who is first, what is not known, what was pruned, and a crash between any two requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.store import ObjectStore
from exactlyonce.connectors.object_log.documents import LogDamaged
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import CREATE_TRIES, LogMissing, ObjectLog
from exactlyonce.connectors.object_log.points import POINTS
from exactlyonce.errors import CommitOutcomeUnknown, LedgerRefused, LedgerUnreachable, LostRace
from exactlyonce.ledger.expiry import delete_expired
from exactlyonce.ledger.fence import EpochOvertaken, Fenced, Permit, fence, raise_epoch
from exactlyonce.ledger.port import LedgerTransaction, Lock
from exactlyonce.ledger.rows import BatchStatus, Excess, Owner
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark.landing import begin_batch, land_batch
from exactlyonce_spark.planned import LandingRefused, PlannedBatch, Written
from tests.ledgers import IDS, P0, P1, STREAM, batch_row, new_stream, started
from tests.simulation.objects import MemoryObjects
from tests.simulation.resource import KEEPS_NOTHING


class Crashed(BaseException):
    """Ends a process as SIGKILL does."""


def ledger_on(
    store: ObjectStore, every: int = 100, reached: Callable[[str], None] = lambda point: None
) -> ObjectLogLedger:
    """A ledger of a process of its own on a log."""
    made = ObjectLogLedger(ObjectLog(store, "ledger", snapshot_every=every, reached=reached))
    made.prepare()
    return made


def land(ledger: ObjectLogLedger, permit: Permit, number: int) -> None:
    """Land a batch of one record, whose id is the batch's number."""
    ranges = Ranges({P0: OffsetRange(number - 1, number), P1: OffsetRange(0, 0)})

    def write(transaction: LedgerTransaction) -> Written:
        transaction.write_committable(STREAM, BatchNumber(number), f"record {number}")
        return Written(1)

    land_batch(ledger, permit, PlannedBatch(BatchNumber(number), ranges, IDS), write)


def visible(ledger: ObjectLogLedger) -> list[str]:
    """What a reader of the log sees."""
    with ledger.transaction() as transaction:
        return list(transaction.read_committables(STREAM).values())


def records(last: int) -> list[str]:
    return [f"record {number}" for number in range(1, last + 1)]


def entries(store: MemoryObjects) -> list[str]:
    return sorted(path.rsplit("/", 1)[1] for path in store.objects if path.endswith(".entry"))


def snapshots(store: MemoryObjects) -> list[str]:
    return sorted(path.rsplit("/", 1)[1] for path in store.objects if path.endswith(".snapshot"))


@pytest.fixture
def store() -> MemoryObjects:
    return MemoryObjects()


def test_a_look_before_anything_was_prepared_finds_nothing_and_makes_nothing(store: MemoryObjects) -> None:
    ledger = ObjectLogLedger(ObjectLog(store, "ledger"))
    assert ledger.look(STREAM) is None
    with pytest.raises(LogMissing, match="no ledger at s3a://lake/orders/ledger"), ledger.transaction():
        pass
    assert store.objects == {}


def test_two_processes_that_prepare_one_log_know_it_by_one_identity(store: MemoryObjects) -> None:
    assert ledger_on(store).database_identity() == ledger_on(store).database_identity()


def test_a_batch_in_steady_state_is_one_entry(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    land(ledger, permit, 1)
    before = len(entries(store))
    for number in range(2, 6):
        ranges = Ranges({P0: OffsetRange(number - 1, number), P1: OffsetRange(0, 0)})
        begin_batch(ledger, permit, PlannedBatch(BatchNumber(number), ranges, IDS), follows_own=True)
        land(ledger, permit, number)
    assert len(entries(store)) == before + 4
    assert visible(ledger) == records(5)


def test_the_first_batch_of_a_driver_is_recorded_before_it_lands(store: MemoryObjects) -> None:
    """So a batch that ends its driver without a word is known to whoever has to make it smaller."""
    ledger = ledger_on(store)
    permit = started(ledger)
    ranges = Ranges({P0: OffsetRange(0, 1), P1: OffsetRange(0, 0)})
    begin_batch(ledger, permit, PlannedBatch(BatchNumber(1), ranges, IDS))
    view = ledger_on(store).look(STREAM)
    assert view is not None
    assert [row.status for row in view.batches] == [BatchStatus.SEEDED, BatchStatus.IN_PROGRESS]


def test_a_dispensable_record_is_left_out_and_its_fence_is_not(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    before = dict(store.objects)
    with ledger.transaction(dispensable=True) as transaction:
        fence(transaction, permit, Lock.SHARE)
        transaction.write_batch(STREAM, batch_row(1, BatchStatus.IN_PROGRESS))
    assert store.objects == before
    raise_epoch(ledger_on(store), new_stream(ledger), Epoch(2))
    with pytest.raises(Fenced), ledger.transaction(dispensable=True) as transaction:
        fence(transaction, permit, Lock.SHARE)


def test_of_two_transactions_over_one_state_the_later_one_loses_and_leaves_nothing(store: MemoryObjects) -> None:
    ours, theirs = ledger_on(store), ledger_on(store)
    permit = started(ours)

    def both() -> None:
        with ours.transaction() as transaction:
            transaction.write_batch(STREAM, batch_row(7))
            land(theirs, permit, 1)

    with pytest.raises(LostRace):
        both()
    view = ours.look(STREAM)
    assert view is not None
    assert (view.stream.landed_batch, view.batch(BatchNumber(7))) == (1, None)


def test_a_landing_that_loses_to_a_raise_runs_its_rules_again_and_is_fenced(store: MemoryObjects) -> None:
    driver, operator = ledger_on(store), ledger_on(store)
    permit = started(driver)
    store.hooks.step = once(
        lambda label: label.startswith("create"), lambda: raise_epoch(operator, new_stream(operator), Epoch(2))
    )
    with pytest.raises(Fenced):
        land(driver, permit, 1)
    assert visible(operator) == []


def test_a_raise_that_loses_to_a_landing_is_run_again_over_what_has_landed(store: MemoryObjects) -> None:
    driver, operator = ledger_on(store), ledger_on(store)
    permit = started(driver)
    store.hooks.step = before_create(lambda: land(driver, permit, 1))
    raised = raise_epoch(operator, new_stream(operator), Epoch(2))
    assert raised.before is not None
    assert raised.before.landed_batch == 1
    assert visible(operator) == records(1)


def test_whoever_loses_every_race_is_told_so_in_the_end(store: MemoryObjects) -> None:
    driver, operator = ledger_on(store), ledger_on(store)
    permit = started(driver)
    numbers = iter(range(1, 1000))

    def always_first(label: str) -> None:
        if label.startswith("create"):
            store.hooks.step = lambda _: None
            land(driver, permit, next(numbers))
            store.hooks.step = always_first

    store.hooks.step = always_first
    with pytest.raises(LostRace):
        raise_epoch(operator, new_stream(operator), Epoch(2))


@pytest.mark.parametrize("fate", ["lost", "applied"])
@pytest.mark.parametrize("unanswered", range(1, CREATE_TRIES + 2))
def test_a_create_without_an_answer_is_sent_again_and_lands_once(
    store: MemoryObjects, fate: str, unanswered: int
) -> None:
    """With more of them than there are tries the outcome is settled under the lock, by an entry of its own."""
    ledger = ledger_on(store)
    permit = started(ledger)
    fates = iter([fate] * unanswered)
    store.hooks.create_fate = lambda: next(fates, "answered")
    land(ledger, permit, 1)
    land(ledger, permit, 2)
    assert visible(ledger_on(store)) == records(2)


def test_a_create_that_is_never_answered_is_unknown_and_not_failed(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    store.hooks.create_fate = lambda: "lost"
    with pytest.raises(CommitOutcomeUnknown, match="entry 4"):
        land(ledger, permit, 1)


def test_a_create_that_arrives_after_the_look_that_settled_it_finds_its_name_taken(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    fates = iter(["late"] * CREATE_TRIES)
    store.hooks.create_fate = lambda: next(fates, "answered")
    land(ledger, permit, 1)
    assert len(store.under_way) == CREATE_TRIES
    for request in list(store.under_way):
        store.settle(request)
    land(ledger, permit, 2)
    assert visible(ledger_on(store)) == records(2)


def test_a_create_that_arrives_before_the_look_that_settles_it_has_landed(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    fates = iter(["late"] * CREATE_TRIES)

    def fate() -> str:
        found = next(fates, "answered")
        if found == "answered" and store.under_way:
            store.settle(store.under_way[0])
            store.under_way.clear()
        return found

    store.hooks.create_fate = fate
    land(ledger, permit, 1)
    land(ledger, permit, 2)
    assert visible(ledger_on(store)) == records(2)


def test_a_look_under_the_lock_is_an_entry_even_where_it_changes_nothing(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    before = len(entries(store))
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.SHARE)
    assert len(entries(store)) == before
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.UPDATE)
    assert len(entries(store)) == before + 1


def test_a_log_stays_short_and_every_fold_of_it_gives_the_same(store: MemoryObjects) -> None:
    ledger = ledger_on(store, every=5)
    permit = started(ledger)
    for number in range(1, 41):
        land(ledger, permit, number)
    assert len(snapshots(store)) == 2
    assert len(entries(store)) <= 10
    assert ledger_on(store).look(STREAM) == ledger.look(STREAM)
    assert visible(ledger_on(store)) == records(40)


def test_a_list_that_misses_all_that_came_and_went_while_it_was_made_still_shows_a_log(store: MemoryObjects) -> None:
    """Behind one snapshot alone everything may have gone, and the one that took its place is not seen yet."""
    writer = ledger_on(store, every=3)
    permit = started(writer)
    landed = 12
    for number in range(1, landed + 1):
        land(writer, permit, number)

    def meanwhile(label: str) -> None:
        nonlocal landed
        if label.startswith("list more"):
            store.hooks.step = lambda _: None
            newest = snapshots(store)[-1]
            while newest == snapshots(store)[-1]:
                landed += 1
                land(writer, permit, landed)
            store.hooks.step = meanwhile

    reader = ledger_on(store)
    store.hooks.step, store.hooks.shows = meanwhile, lambda: False
    seen = reader.look(STREAM)
    store.hooks.step = lambda _: None
    assert seen is not None, "a log that looks empty would be a new stream"
    assert visible(reader) == records(landed)


def test_a_process_that_slept_while_its_names_were_pruned_writes_into_a_gap_that_nobody_reads(
    store: MemoryObjects,
) -> None:
    sleeper, others = ledger_on(store, every=5), ledger_on(store, every=5)
    permit = started(sleeper)
    land(sleeper, permit, 1)

    def days_pass() -> None:
        raise_epoch(others, new_stream(others), Epoch(2))
        for number in range(1, 31):
            with others.transaction() as transaction:
                transaction.write_batch(STREAM, batch_row(100 + number))

    store.hooks.step = before_create(days_pass)
    with pytest.raises(Fenced):
        land(sleeper, permit, 2)
    assert "000000000005.entry" in entries(store), "its name was free again"
    assert "000000000006.entry" not in entries(store)
    assert visible(others) == visible(ledger_on(store)) == visible(sleeper) == records(1)


def test_whoever_last_saw_the_log_before_a_gap_reads_past_what_was_written_there(store: MemoryObjects) -> None:
    sleeper, reader, others = (ledger_on(store, every=5) for _ in range(3))
    permit = started(sleeper)
    assert reader.look(STREAM) is not None

    def days_pass() -> None:
        for number in range(1, 31):
            with others.transaction() as transaction:
                transaction.write_batch(STREAM, batch_row(100 + number))

    store.hooks.step = before_create(days_pass)
    with pytest.raises(CommitOutcomeUnknown, match=r"entry 4 .* what followed on it is pruned"):
        record_landing(sleeper, permit)
    assert entries(store)[0] == "000000000004.entry", "the void entry is there"
    assert reader.look(STREAM) == ledger_on(store).look(STREAM)
    assert visible(reader) == []
    land(sleeper, permit, 1)  # nobody has fenced it, so it lands in the end, at the end of the log
    assert visible(reader) == records(1)


def record_landing(ledger: ObjectLogLedger, permit: Permit) -> None:
    """Write under the lock in one transaction, and leave what becomes of it to the caller."""
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.UPDATE)
        transaction.write_committable(STREAM, BatchNumber(1), "record 1")


def test_an_entry_that_somebody_built_on_is_in_the_log_though_it_is_not_the_newest(store: MemoryObjects) -> None:
    ours, theirs = ledger_on(store), ledger_on(store)
    permit = started(ours)

    def they_append() -> None:
        with theirs.transaction() as transaction:
            transaction.write_batch(STREAM, batch_row(9, BatchStatus.FAILED))

    store.hooks.step = once(lambda label: label.startswith("created"), they_append)
    land(ours, permit, 1)
    assert visible(ours) == visible(theirs) == records(1)


def test_a_landing_whose_names_cannot_be_listed_is_settled_under_the_lock(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    failures = iter([False, True])  # the fold's list is answered, the one after the create is not
    store.hooks.reads_fail = lambda: next(failures, False)
    land(ledger, permit, 1)
    assert visible(ledger_on(store)) == records(1)


def test_a_store_that_does_not_answer_at_all_is_unreachable_and_nothing_else(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    store.hooks.reads_fail = lambda: True
    with pytest.raises(LedgerUnreachable, match="s3a://lake/orders/ledger"):
        land(ledger, permit, 1)
    with pytest.raises(LedgerUnreachable):
        ledger.look(STREAM)


@pytest.mark.parametrize("number", [2, 3])
def test_a_missing_entry_is_told_by_its_number(store: MemoryObjects, number: int) -> None:
    started(ledger_on(store))
    with ledger_on(store).transaction() as transaction:
        transaction.write_batch(STREAM, batch_row(1))
    store.delete([path for path in store.objects if path.endswith(f"{number:012}.entry")])
    with pytest.raises(LogDamaged, match=f"lacks entry {number}"):
        ledger_on(store).look(STREAM)


@pytest.mark.parametrize("name", ["log.json", "000000000002.entry"])
@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b"\xff\xfe"])
def test_an_object_that_was_cut_or_overwritten_is_refused_in_a_sentence(
    store: MemoryObjects, name: str, damage: bytes
) -> None:
    started(ledger_on(store))
    path = next(path for path in store.objects if path.endswith(name))
    store.objects[path] = damage
    with pytest.raises(LedgerRefused, match=rf"(?s)^(?!.*\n).*{name}"):
        ObjectLogLedger(ObjectLog(store, "ledger")).look(STREAM)


def test_an_object_whose_content_was_changed_is_known_by_its_checksum(store: MemoryObjects) -> None:
    started(ledger_on(store))
    path = next(path for path in store.objects if path.endswith("000000000002.entry"))
    store.objects[path] = store.objects[path].replace(b'"orders",0', b'"orders",7')
    with pytest.raises(LogDamaged, match="checksum"):
        ledger_on(store).look(STREAM)


def test_a_log_of_a_newer_format_is_left_alone(store: MemoryObjects) -> None:
    store.objects["ledger/log.json"] = (
        b'{"checksum":"b9dc7ff6a9d3ac0a18bfd7c35ed9d9e2cd1c6fbdbf4b5b4b1f1b4b4e7f3ba8b7","content":{}}'
    )
    with pytest.raises(LogDamaged):
        ledger_on(store)


def test_a_process_whose_log_was_removed_and_made_again_sees_the_new_one_alone(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    land(ledger, permit, 1)
    store.objects.clear()
    with pytest.raises(LogMissing):
        land(ledger, permit, 2)
    another = ledger_on(store)
    started(another, epoch=5)
    with pytest.raises(Fenced):
        land(ledger, permit, 2)
    assert visible(ledger) == []


def test_a_stream_is_forgotten_by_its_owner_alone_and_others_of_the_log_stay(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    land(ledger, started(ledger), 1)
    raise_epoch(ledger, replace(new_stream(ledger), stream_id="shop/other"), Epoch(1))
    ledger.forget(STREAM, Owner("cluster-1", "another uid"))
    assert ledger.look(STREAM) is not None
    for _ in range(2):
        ledger.forget(STREAM, Owner("cluster-1", "uid-1"))
    assert ledger.look(STREAM) is None
    assert ledger_on(store).look("shop/other") is not None
    assert visible(ledger) == []


def test_what_is_not_kept_goes_by_the_writers_clock(store: MemoryObjects) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    log = ObjectLog(store, "ledger")
    ledger = ObjectLogLedger(log, lambda: now)
    ledger.prepare()
    permit = started(ledger)
    for number in range(1, 5):
        land(ledger, permit, number)
        now += timedelta(hours=1)
    with ledger.transaction() as transaction:
        old = Excess((BatchStatus.LANDED,), timedelta(hours=2, minutes=30))
        assert transaction.delete_batches(STREAM, old, 1, 100) == 2
    assert visible(ledger) == records(4), "what a batch made visible stays, or readers would lose it"
    assert delete_expired(ledger, permit, KEEPS_NOTHING, fewest=1).batches == 2, "the seed and one more"


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("time", [1, 2, 7])
def test_a_process_that_dies_between_any_two_requests_leaves_a_log_its_successor_goes_on_with(
    tmp_path: Path, point: str, time: int
) -> None:
    """On a real disk; every record is counted by its id at the end."""
    unanswered = point == "log.create-unanswered"
    disk = Unanswering(str(tmp_path)) if unanswered else LocalLogStore(str(tmp_path))
    passed = 0

    def reached(at: str) -> None:
        nonlocal passed
        passed += at == point
        if at == point and passed == time:
            raise Crashed

    lives = 0
    while True:
        lives += 1
        try:
            ledger = ledger_on(disk, every=3, reached=reached)
            view = ledger.look(STREAM)
            epoch = lives if view is None else view.stream.epoch + 1
            permit = go_on(ledger, epoch)
            view = ledger.look(STREAM)
            assert view is not None
            for number in range((view.stream.landed_batch or 0) + 1, 21):
                land(ledger, permit, number)
        except Crashed:
            continue
        break
    crashes = 1 if point != "log.before-origin" or time == 1 else 0
    assert lives == 1 + crashes
    assert visible(ledger_on(LocalLogStore(str(tmp_path)))) == records(20)


def go_on(ledger: ObjectLogLedger, epoch: int) -> Permit:
    """Start the stream, or take it over from whoever died."""
    from exactlyonce.ledger.fence import claim_epoch

    view = ledger.look(STREAM)
    if view is None or view.stream.checkpoint_path is None:
        return started(ledger, epoch)
    raise_epoch(ledger, new_stream(ledger), Epoch(epoch))
    return claim_epoch(ledger, STREAM, Epoch(epoch), f"claim-{epoch}")[0]


class Unanswering(LocalLogStore):
    """A disk behind a network: every third create takes effect and its answer is lost."""

    _creates = 0

    def create(self, path: str, content: bytes):  # type: ignore[no-untyped-def]
        from exactlyonce.errors import StoreUnreachable

        outcome = super().create(path, content)
        self._creates += 1
        if self._creates % 3 == 0:
            raise StoreUnreachable("the answer is lost")
        return outcome


def test_who_acts_for_an_older_epoch_is_refused_after_losing_a_race_too(store: MemoryObjects) -> None:
    ours, theirs = ledger_on(store), ledger_on(store)
    permit = started(ours)
    store.hooks.step = before_create(lambda: raise_epoch(theirs, new_stream(theirs), Epoch(9)))
    with pytest.raises(EpochOvertaken):
        raise_epoch(ours, new_stream(ours), Epoch(5))
    with pytest.raises((Fenced, LandingRefused)):
        land(ours, permit, 1)


def before_create(act: Callable[[], object]) -> Callable[[str], None]:
    """Do something before the next create takes effect."""
    return once(lambda label: label.startswith("create"), act)


def once(when: Callable[[str], bool], act: Callable[[], object]) -> Callable[[str], None]:
    """Do something at the first step that fits, before that takes effect."""
    done = False

    def step(label: str) -> None:
        nonlocal done
        if not done and when(label):
            done = True
            act()

    return step
