"""Leases as KCL keeps them. The items are what the serializer of amazon-kinesis-client 3.0.0 made of leases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.connectors.kinesis.leases import (
    EVERY_USER_RECORD,
    Checkpoint,
    Lease,
    NotALease,
    StartsAt,
    StartsAtTip,
    StartsAtUnknownMoment,
    StartsBehind,
    checkpoint_at,
    continuation,
    item_of,
    lease_of,
)
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, from_text, to_text

ITEMS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("kinesis_leases.json").read_text())
NUMBER = 49590338271490256608559692538361571095921575989136588898


def test_a_lease_that_kcl_has_written_is_read_as_what_it_says() -> None:
    assert lease_of(ITEMS["held"]) == Lease(
        "shardId-000000000001",
        Checkpoint(str(NUMBER), 3),
        7,
        "worker-1",
        frozenset({"shardId-000000000000"}),
        frozenset({"shardId-000000000002", "shardId-000000000003"}),
        (0, (1 << 127) - 1),
        is_pending=True,
        is_prepared=True,
    )


def test_a_lease_that_one_worker_hands_to_another_is_pending_and_has_no_prepared_checkpoint() -> None:
    lease = lease_of({**ITEMS["free"], "checkpointOwner": {"S": "worker-1"}})
    assert lease is not None
    assert (lease.is_pending, lease.is_prepared) == (True, False)


def test_a_lease_that_nobody_holds_is_written_as_kcl_itself_writes_it() -> None:
    lease = lease_of(ITEMS["free"])
    assert lease is not None
    assert item_of(lease) == ITEMS["free"]


def test_what_newer_releases_keep_beside_leases_is_no_lease() -> None:
    assert lease_of({"leaseKey": {"S": "leader"}, "entityType": {"S": "LEADER"}}) is None
    assert lease_of({**ITEMS["free"], "entityType": {"S": "LEASE"}}) is not None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"leaseKey": {"S": "123456789012:orders:1700000000:shardId-000000000000"}}, "is not named like a shard"),
        ({"leaseKey": {"S": "order-17"}}, "is not named like a shard"),
        ({"leaseCounter": {"S": "7"}}, "has no leaseCounter"),
        ({"leaseCounter": {"N": "-7"}}, "has no leaseCounter"),
        ({"checkpoint": {"S": "yesterday"}}, "which KCL does not write"),
        ({"checkpoint": {"N": "1"}}, "has no checkpoint"),
        ({"parentShardId": {"S": "shardId-000000000000"}}, "has no parentShardId"),
        ({"leaseOwner": {"SS": ["a"]}}, "has no leaseOwner"),
    ],
)
def test_an_item_that_is_no_lease_of_a_shard_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(NotALease, match=named):
        lease_of({**ITEMS["held"], **change})


def test_what_a_server_says_of_itself_is_one_short_line() -> None:
    with pytest.raises(NotALease) as refused:
        lease_of({**ITEMS["held"], "leaseKey": {"S": "x\n" * 5000}})
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("position", "checkpoint"),
    [
        ("TRIM_HORIZON", Checkpoint("TRIM_HORIZON")),
        ("SHARD_END", Checkpoint("SHARD_END")),
        # The next user record is 1, so 0 is the last one that was processed.
        (f"{NUMBER}:1", Checkpoint(str(NUMBER), 0)),
        (f"{NUMBER}:7", Checkpoint(str(NUMBER), 6)),
        # How many user records it had is not known; no sub-sequence number of an aggregate is above this one.
        (f"after {NUMBER}", Checkpoint(str(NUMBER), (1 << 32) - 1)),
    ],
)
def test_a_checkpoint_names_the_last_record_and_a_position_the_next(position: str, checkpoint: Checkpoint) -> None:
    assert checkpoint_at(from_text(position)) == checkpoint


@pytest.mark.parametrize(
    ("checkpoint", "user_records", "position"),
    [
        (Checkpoint(str(NUMBER), 0), 1, f"after {NUMBER}"),
        (Checkpoint(str(NUMBER), 0), 2, f"{NUMBER}:1"),
        (Checkpoint(str(NUMBER), 3), 5, f"{NUMBER}:4"),
        (Checkpoint(str(NUMBER), 4), 5, f"after {NUMBER}"),
        (Checkpoint(str(NUMBER), 9), 5, f"after {NUMBER}"),
    ],
)
def test_a_shard_goes_on_behind_what_a_lease_names(checkpoint: Checkpoint, user_records: int, position: str) -> None:
    found = continuation(checkpoint)
    assert isinstance(found, StartsBehind)
    assert to_text(found.position(user_records)) == position


def test_sentinels_say_where_without_a_record() -> None:
    assert continuation(Checkpoint("TRIM_HORIZON")) == StartsAt(TRIM_HORIZON)
    assert continuation(Checkpoint("SHARD_END")) == StartsAt(SHARD_END)
    assert continuation(Checkpoint("LATEST")) == StartsAtTip()
    assert continuation(Checkpoint("AT_TIMESTAMP")) == StartsAtUnknownMoment()


@pytest.mark.parametrize(
    "position", [TRIM_HORIZON, SHARD_END, UserRecord(NUMBER + 1).position, UserRecord(NUMBER, 4).position]
)
def test_what_is_written_is_read_as_the_same_position(position: int) -> None:
    match continuation(checkpoint_at(position)):
        case StartsAt(found):
            assert found == position
        case StartsBehind() as behind:
            assert behind.position(user_records=EVERY_USER_RECORD) == position
        case other:
            pytest.fail(f"{other}")
