"""Which leases are written so that a KCL application continues where the stream has landed, and which are left alone."""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.connectors.kinesis.lease_marks import Mark, marked_by, name_of
from exactlyonce.connectors.kinesis.lease_plan import (
    UNMOVED_SECONDS,
    CreateLease,
    LeasePlan,
    MoveLease,
    plan_leases,
    sightings_of,
)
from exactlyonce.connectors.kinesis.lease_rights import Other
from exactlyonce.connectors.kinesis.leases import EVERY_USER_RECORD, Checkpoint, Lease
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, position_after_record
from exactlyonce.connectors.kinesis.shards import GREATEST_HASH_KEY, Shard
from exactlyonce.source.port import ShownStream

HALF = 1 << 127
A, B, C, D = (f"shardId-{number:012d}" for number in range(4))
PARENT = Shard(A, (), 0, GREATEST_HASH_KEY, 100, 200)
LEFT, RIGHT = Shard(B, (A,), 0, HALF - 1, 300), Shard(C, (A,), HALF, GREATEST_HASH_KEY, 400)
SPLIT = (PARENT, LEFT, RIGHT)
MERGED = (
    Shard(B, (A,), 0, HALF - 1, 300, 350),
    Shard(C, (A,), HALF, GREATEST_HASH_KEY, 400, 450),
    Shard(D, (B, C), 0, GREATEST_HASH_KEY, 500),
)
OPEN = (Shard(A, (), 0, GREATEST_HASH_KEY, 100),)
AFTER_150 = Checkpoint("150", EVERY_USER_RECORD)
START, END = Checkpoint("TRIM_HORIZON"), Checkpoint("SHARD_END")
STREAM = ShownStream("shop/orders", "system 7 database 5", "0123456789abcdef")
NAME = name_of(STREAM)


def marked(checkpoint: Checkpoint) -> Mark:
    return marked_by(NAME, None, checkpoint.text)


def own(
    key: str, checkpoint: Checkpoint, counter: int = 0, owner: str | None = None, *, pending: bool = False
) -> Lease:
    """Return a lease that the stream has written, and that nobody has moved since."""
    return Lease(key, checkpoint, counter, owner, is_pending=pending, mark=marked(checkpoint))


def planned(
    landed: dict[str, int],
    shards: tuple[Shard, ...],
    *found: Lease,
    before: tuple[Lease, ...] = (),
    waited: float = 1.0,
) -> LeasePlan:
    """Plan after two looks at the table, `waited` seconds apart; it held `before` at the first."""
    first = sightings_of({lease.key: lease for lease in before or found}, None, 0.0)
    leases = {lease.key: lease for lease in found}
    return plan_leases(landed, shards, leases, sightings_of(leases, first, waited), STREAM)


def test_a_shard_without_a_lease_gets_one_that_kcl_could_have_made() -> None:
    plan = planned({A: position_after_record(150)}, OPEN)
    assert plan == LeasePlan(
        (CreateLease(Lease(A, AFTER_150, hash_keys=(0, GREATEST_HASH_KEY), mark=marked(AFTER_150))),)
    )


def test_a_lease_that_nobody_holds_moves_on_the_condition_of_its_counter() -> None:
    plan = planned({A: position_after_record(150)}, OPEN, own(A, Checkpoint("120", 0), 9))
    assert plan == LeasePlan((MoveLease(A, 9, AFTER_150, marked(AFTER_150)),))


def test_a_lease_that_says_what_has_landed_is_not_written_again() -> None:
    assert planned({A: position_after_record(150)}, OPEN, own(A, AFTER_150, 9)) == LeasePlan()


def test_a_lease_in_front_of_what_has_landed_is_moved_back() -> None:
    plan = planned({A: position_after_record(150)}, OPEN, own(A, Checkpoint("190", 0)))
    assert plan.writes == (MoveLease(A, 0, AFTER_150, marked(AFTER_150)),)


def test_a_lease_at_its_shards_end_is_never_moved_and_that_is_told() -> None:
    plan = planned({A: position_after_record(150)}, SPLIT, own(A, Checkpoint("SHARD_END"), owner="gone"))
    assert plan == LeasePlan(ended=(A,))


def test_the_lease_of_a_worker_whose_counter_moves_is_left_alone_and_told() -> None:
    before = own(A, Checkpoint("120", 0), 9, "worker")
    now = own(A, Checkpoint("120", 0), 10, "worker")
    assert planned({A: position_after_record(150)}, OPEN, now, before=(before,)) == LeasePlan(held={A: "worker"})


def test_a_lease_that_was_taken_between_two_looks_has_a_worker_that_lives() -> None:
    now = own(A, AFTER_150, 4, "worker")
    assert planned({A: position_after_record(150)}, OPEN, now, before=(own(A, AFTER_150, 3),)).held == {A: "worker"}


def test_a_worker_lives_until_nothing_of_its_lease_has_moved_for_a_while() -> None:
    first = {A: own(A, Checkpoint("120", 0), 9, "worker")}
    then = {A: own(A, Checkpoint("130", 0), 10, "worker")}
    landed = {A: position_after_record(150)}
    seen = sightings_of(then, sightings_of(first, None, 0.0), 5.0)
    soon = sightings_of(then, seen, 5.0 + UNMOVED_SECONDS - 1)
    late = sightings_of(then, soon, 5.0 + UNMOVED_SECONDS)
    assert plan_leases(landed, OPEN, then, soon, STREAM) == LeasePlan(held={A: "worker"})
    assert plan_leases(landed, OPEN, then, late, STREAM) == LeasePlan((MoveLease(A, 10, AFTER_150, marked(AFTER_150)),))


def test_on_the_first_look_nobody_knows_whether_a_worker_lives() -> None:
    held = own(A, Checkpoint("120", 0), 9, "worker")
    landed = {A: position_after_record(150)}
    assert plan_leases(landed, OPEN, {A: held}, sightings_of({A: held}, None, 0.0), STREAM) == LeasePlan(unknown=(A,))
    assert planned(landed, OPEN, held, waited=UNMOVED_SECONDS - 1) == LeasePlan(unknown=(A,))
    assert planned(landed, OPEN, held, waited=UNMOVED_SECONDS).writes == (
        MoveLease(A, 9, AFTER_150, marked(AFTER_150)),
    )


def test_what_a_worker_that_is_gone_was_about_to_do_is_removed() -> None:
    assert planned({A: position_after_record(150)}, OPEN, own(A, AFTER_150, pending=True)).writes


def test_children_get_leases_once_their_parent_has_landed_to_its_end() -> None:
    assert planned({A: position_after_record(150)}, SPLIT).writes == (
        CreateLease(Lease(A, AFTER_150, hash_keys=(0, GREATEST_HASH_KEY), mark=marked(AFTER_150))),
    )
    parent = Lease(A, END, children=frozenset({B, C}), hash_keys=(0, GREATEST_HASH_KEY), mark=marked(END))
    assert planned({A: SHARD_END}, SPLIT).writes == (
        CreateLease(parent),
        CreateLease(Lease(B, START, parents=frozenset({A}), hash_keys=(0, HALF - 1), mark=marked(START))),
        CreateLease(Lease(C, START, parents=frozenset({A}), hash_keys=(HALF, GREATEST_HASH_KEY), mark=marked(START))),
    )


def test_the_lease_of_a_parent_that_has_landed_names_its_children() -> None:
    plan = planned({A: SHARD_END, B: TRIM_HORIZON, C: TRIM_HORIZON}, SPLIT, own(A, AFTER_150, 2))
    assert plan.writes[0] == MoveLease(A, 2, END, marked(END), frozenset({B, C}))


def test_the_child_of_a_merge_waits_for_both_parents() -> None:
    landed = {A: SHARD_END, B: SHARD_END, C: position_after_record(420)}
    assert [write.lease.key for write in planned(landed, MERGED).writes if isinstance(write, CreateLease)] == [B, C]
    assert [
        write.lease.key for write in planned({**landed, C: SHARD_END}, MERGED).writes if isinstance(write, CreateLease)
    ] == [B, C, D]


def test_a_child_waits_for_a_parent_that_the_stream_has_not_come_to() -> None:
    keys = [write.lease.key for write in planned({B: SHARD_END}, MERGED).writes if isinstance(write, CreateLease)]
    assert keys == [B]


def test_a_shard_that_is_listed_no_more_gets_no_lease() -> None:
    assert planned({A: SHARD_END, B: TRIM_HORIZON, C: TRIM_HORIZON}, (LEFT, RIGHT)).writes == (
        CreateLease(Lease(B, START, parents=frozenset({A}), hash_keys=(0, HALF - 1), mark=marked(START))),
        CreateLease(Lease(C, START, parents=frozenset({A}), hash_keys=(HALF, GREATEST_HASH_KEY), mark=marked(START))),
    )


def test_leases_of_shards_that_the_stream_does_not_have_are_left_as_they_are() -> None:
    assert planned({A: position_after_record(150)}, OPEN, own(A, AFTER_150), own(D, Checkpoint("9", 0))) == LeasePlan()


def test_nothing_at_all_is_written_to_a_table_that_holds_a_lease_of_somebody_else() -> None:
    landed = {A: SHARD_END, B: position_after_record(350)}
    strange = Lease(C, Checkpoint("420", 0))
    assert planned(landed, SPLIT, own(A, AFTER_150), strange) == LeasePlan(others={C: Other.APPLICATION})


def test_a_lease_that_already_stands_there_is_marked_where_the_stream_may_write_it() -> None:
    taken = {A: Lease(A, AFTER_150, 3)}
    stream = replace(STREAM, took_over=True)
    plan = plan_leases({A: position_after_record(150)}, OPEN, taken, sightings_of(taken, None, 0.0), stream)
    assert plan == LeasePlan((MoveLease(A, 3, AFTER_150, marked(AFTER_150)),))
