"""What a pass makes of a data stream: bad input starts nothing and writes nothing, and what was lost is named by shard."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from botocore.exceptions import EndpointConnectionError

from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.reconcile.loop import Halted, Waiting, Watching
from tests.kinesis_api import GREATEST_HASH_KEY, SHARD, StoredShard, refusal
from tests.kinesis_in_memory import FIRST_SEQUENCE_NUMBER
from tests.unit.kinesis_passes import KinesisMachine, RefusingKinesis
from tests.unit.passes import FIRST, STREAM

LEFT, RIGHT = "shardId-000000000001", "shardId-000000000002"
CHILDREN = ("shardId-000000000003", "shardId-000000000004")
A_NUMBER = FIRST_SEQUENCE_NUMBER + 7
"""A sequence number as Kinesis gives them."""

DENIED = {
    f"may not call kinesis:{action}": (lambda method=method, action=action: denied(method, action))
    for method, action in {
        "describe_stream_summary": "DescribeStreamSummary",
        "list_shards": "ListShards",
        "get_shard_iterator": "GetShardIterator",
        "get_records": "GetRecords",
    }.items()
}


def denied(method: str, action: str) -> KinesisMachine:
    machine = KinesisMachine(start={"from": "Latest"})
    machine.api.refused[method] = lambda: refusal("AccessDeniedException", action, f"User is not authorized: {action}")
    return machine


def missing() -> KinesisMachine:
    return KinesisMachine(RefusingKinesis(is_missing=True))


def nowhere() -> KinesisMachine:
    machine = KinesisMachine()
    address = "https://kinesis.eu-nowhere-1.amazonaws.com"
    machine.api.refused["describe_stream_summary"] = lambda: EndpointConnectionError(endpoint_url=address)
    return machine


def in_another_region() -> KinesisMachine:
    """As a service says it whose region is another one than the login was signed for."""
    machine = KinesisMachine()
    said = "Credential should be scoped to a valid region, not 'eu-west-1'."
    machine.api.refused["describe_stream_summary"] = lambda: refusal("InvalidSignatureException", "Any", said)
    return machine


def encrypted() -> KinesisMachine:
    machine = KinesisMachine(start={"from": "Latest"})
    said = "User is not authorized to perform: kms:Decrypt"
    machine.api.refused["get_records"] = lambda: refusal("KMSAccessDeniedException", "GetRecords", said)
    return machine


def foreign_positions() -> KinesisMachine:
    return KinesisMachine(start={"from": "Positions", "positions": {SHARD: "after 12345"}})


def foreign_table() -> KinesisMachine:
    machine = KinesisMachine(start={"from": "LeaseTable"})
    machine.leases.items = [{"orderId": {"S": "17"}, "total": {"N": "12"}}]
    return machine


def positions_that_kinesis_refuses() -> KinesisMachine:
    """As Kinesis says it of a number that has the form of its own and is of another stream."""
    machine = KinesisMachine(start={"from": "Positions", "positions": {SHARD: f"after {A_NUMBER}"}})
    said = "StartingSequenceNumber 4957 used in GetShardIterator on shard shardId-000000000000 in stream orders is invalid."
    machine.api.refused["get_shard_iterator"] = lambda: refusal("InvalidArgumentException", "GetShardIterator", said)
    return machine


def leases_of(checkpoint: str) -> KinesisMachine:
    """A table that has one lease, as KCL writes it."""
    machine = KinesisMachine(start={"from": "LeaseTable"})
    machine.leases.items = [
        {
            "leaseKey": {"S": SHARD},
            "checkpoint": {"S": checkpoint},
            "checkpointSubSequenceNumber": {"N": "0"},
            "leaseCounter": {"N": "1"},
            "ownerSwitchesSinceCheckpoint": {"N": "0"},
        }
    ]
    return machine


def leases_of_another_stream() -> KinesisMachine:
    return leases_of("12345")


def leases_of_another_library() -> KinesisMachine:
    return leases_of("latest")


def table_refuses(code: str, said: str) -> KinesisMachine:
    machine = KinesisMachine(start={"from": "LeaseTable"})
    machine.leases.refused = lambda: refusal(code, "Scan", said)
    return machine


def table_denied() -> KinesisMachine:
    said = "User: arn:aws:iam::1:user/x is not authorized to perform: dynamodb:Scan on resource: app"
    return table_refuses("AccessDeniedException", said)


def table_missing() -> KinesisMachine:
    return table_refuses("ResourceNotFoundException", "Requested resource not found")


def overlap() -> KinesisMachine:
    machine = gap()
    machine.api.hash_keys[LEFT] = (90, GREATEST_HASH_KEY)
    return machine


def gap() -> KinesisMachine:
    api = RefusingKinesis(shards={SHARD: StoredShard(), LEFT: StoredShard()})
    api.hash_keys = {SHARD: (0, 99), LEFT: (200, GREATEST_HASH_KEY)}
    return KinesisMachine(api)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (missing, "Kinesis in eu-west-1 has no stream orders; create it, or correct source.kinesis."),
        *((made, f"The login {what} on stream orders of") for what, made in DENIED.items()),
        (nowhere, "there is no connection; check source.kinesis.region and endpoint"),
        (in_another_region, "or source.kinesis.region"),
        (encrypted, "encrypted with a key that may not be used (KMSAccessDeniedException"),
        (
            foreign_positions,
            f"source.kinesis.start.positions has {SHARD} at after 12345, and the shard holds no such record",
        ),
        (
            positions_that_kinesis_refuses,
            f"source.kinesis.start.positions has {SHARD} at after {A_NUMBER}, and the shard holds no such record",
        ),
        (
            leases_of_another_stream,
            f"has the lease of {SHARD} behind record 12345, which has passed its retention or is of another stream",
        ),
        (leases_of_another_library, f"the lease {SHARD} has the checkpoint 'latest', which KCL does not write"),
        (table_denied, "the login may not call dynamodb:Scan on table app of DynamoDB in eu-west-1"),
        (table_missing, "because table app of DynamoDB in eu-west-1 is not there; nothing was written; correct"),
        (overlap, f"Hash keys 90 to 99 belong to two open shards, {SHARD} and {LEFT}; wait until the stream is ACTIVE"),
        (foreign_table, "Table app of DynamoDB in eu-west-1 is not the lease table of one stream"),
        (gap, f"No open shard holds hash keys 100 to 199, between {SHARD} and {LEFT}; wait until the stream is ACTIVE"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_started_or_written(
    made: Callable[[], KinesisMachine], told: str
) -> None:
    machine = made()
    machine.api.put(b"a")
    result = machine.run_pass()
    assert isinstance(result, (Halted, Waiting))
    words = result.message
    assert told in words
    assert words.endswith(".")
    assert "\n" not in words
    assert ". " not in words, "one sentence"
    assert machine.drivers.states == {}, "no driver was started"
    assert [path for path in machine.store.files if "/" in path] == [], "no checkpoint was made"
    view = machine.ledger.view(STREAM)
    assert view is None or not view.landed.positions, "no position was written"
    assert not machine.database.tables.target, "no row was written"
    assert [name for name, _ in machine.reports] == ["Halted" if isinstance(result, Halted) else "BackingOff"]


@pytest.fixture
def machine() -> KinesisMachine:
    """A stream of two shards, one's records before the other's, that has landed two records of three of each and was killed."""
    made = KinesisMachine()
    made.api.shards = {LEFT: StoredShard(), RIGHT: StoredShard()}
    made.api.hash_keys = {LEFT: (0, 99), RIGHT: (100, GREATEST_HASH_KEY)}
    for _ in ("it is started", "it is seen to run"):
        assert made.run_pass() == Watching(FIRST)
    left, right = made.api.put(b"a", b"b", b"c", shard=LEFT), made.api.put(b"a", b"b", b"c", shard=RIGHT)
    made.lands(FIRST, **{LEFT: UserRecord(left[0]).position, RIGHT: UserRecord(right[0]).position})
    made.lands(FIRST, **{LEFT: position_after_record(left[1]), RIGHT: position_after_record(right[0])})
    made.lands(FIRST, **{RIGHT: position_after_record(right[1])})
    made.end(FIRST)
    assert isinstance(made.run_pass(), Waiting)
    return made


def decided(machine: KinesisMachine) -> tuple[str, str]:
    """Pass once more; return the verdict and its evidence in words. Of a halt, nothing may have been started or moved."""
    before = machine.view().landed
    result = machine.run_pass()
    verdict = machine.statuses.status.verdict
    assert verdict is not None
    if isinstance(result, Halted):
        assert list(machine.drivers.states) == [FIRST], "no driver was started"
        assert machine.view().landed == before
    return verdict.kind, "\n".join(str(item) for item in verdict.evidence)


def test_a_stream_that_still_holds_the_last_record_of_each_shard_continues(machine: KinesisMachine) -> None:
    machine.api.expire(1, LEFT)
    machine.api.expire(1, RIGHT)
    assert decided(machine)[0] == "Resume"


def test_a_truncated_shard_halts_the_stream_and_is_named_with_the_batch_before_the_last_that_saw_it_whole(
    machine: KinesisMachine,
) -> None:
    machine.api.expire(2, LEFT)
    kind, told = decided(machine)
    assert kind == "SourceTruncated"
    assert f"{LEFT}: the next position is after " in told
    assert "how many records are gone is not known" in told
    assert f"{LEFT} still held what comes next when batch 2 landed, at 2026-01-01T00:02:00+00:00" in told
    assert RIGHT not in told


def test_a_stream_that_was_recreated_is_another_source_whatever_its_shards_are_called(machine: KinesisMachine) -> None:
    machine.api.created += timedelta(days=1)
    kind, told = decided(machine)
    assert kind == "SourceReplaced"
    assert "stream orders was recreated" in told


def test_a_shard_that_expired_with_records_left_is_a_loss_that_names_it(machine: KinesisMachine) -> None:
    split(machine)
    del machine.api.shards[LEFT]
    kind, told = decided(machine)
    assert kind == "SourceTruncated"
    assert f"{LEFT}: it has landed up to after " in told
    assert "does not exist any more; how many records it still held is not known" in told
    assert "when batch 2 landed" in told


def test_a_shard_that_expired_with_nothing_left_to_land_is_no_loss(machine: KinesisMachine) -> None:
    split(machine)
    machine.run_pass()
    attempt = machine.run_until_a_driver_runs()
    machine.lands(attempt, **{LEFT: SHARD_END, CHILDREN[0]: TRIM_HORIZON, CHILDREN[1]: TRIM_HORIZON})
    machine.end(attempt)
    machine.run_pass()
    del machine.api.shards[LEFT]
    assert decided(machine)[0] == "Resume"


def split(machine: KinesisMachine) -> None:
    machine.api.close_shard(LEFT)
    machine.api.shards |= {child: StoredShard((LEFT,)) for child in CHILDREN}
    machine.api.hash_keys |= {CHILDREN[0]: (0, 49), CHILDREN[1]: (50, 99)}
