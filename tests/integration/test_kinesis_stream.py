"""Streams from Kinesis, as they are run: drivers are killed, shards split and merged, and ids counted in the table."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from exactlyonce.cli.main import main
from exactlyonce.reconcile.loop import Done, Halted
from testbed import kcl
from testbed.faulty_service import FaultyService
from testbed.kinesis import Kinesis
from testbed.postgres import Postgres
from tests.combinations import in_full, only_in_full
from tests.integration.test_files_stream import ids_in
from tests.kinesis_rig import RECORDS_FAULTS, SHARDS, BadDay, Delivered, KinesisRig, Letter, shard

pytestmark = pytest.mark.seconds(23)

ACTIONS = {"DescribeStreamSummary", "GetRecords", "GetShardIterator", "ListShards"}
"""What a stream asks of Kinesis."""


@pytest.fixture(scope="module")
def kinesis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kinesis]:
    with Kinesis(tmp_path_factory.mktemp("stand-in")) as server:
        yield server


def test_every_id_lands_once_and_every_malformed_record_is_kept_though_shards_change_drivers_are_killed_and_calls_fail(
    kinesis: Kinesis, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    day, delivered = BadDay(), Delivered()
    with FaultyService(kinesis.port, day.fate, answered=delivered.answered) as proxy:
        overrides = {"spec.source.format.onMalformed": "DeadLetter", "spec.source.kinesis.endpoint": proxy.endpoint}
        rig = KinesisRig(kinesis, postgres_18, tmp_path, name, **overrides)
        _assert_each_lands_once(rig, day, delivered)
    assert {fault for action, fault in day.failed if action == "GetRecords"} == set(RECORDS_FAULTS)
    assert {action for action, _ in day.failed} == ACTIONS
    told = rig.told_by_drivers()
    assert re.search(rf"stream {name}\b.*The call is made again", told), told[-3000:]


def _assert_each_lands_once(rig: KinesisRig, day: BadDay, delivered: Delivered) -> None:
    rig.put(300)
    malformed = rig.put_malformed()
    rig.kinesis.split(rig.name, shard(0))
    rig.kinesis.merge(rig.name, shard(2), shard(3))
    rig.put(300)
    malformed += rig.put_malformed()
    # A batch that has landed is recognised by the ledger alone, whatever the source is: tests/faults/test_crash_points.py.
    crash, verdicts = in_full(
        ("land.before-commit@2=kill-driver batch.landed@4=kill-driver", {"ReplayBatch", "SkipLanded"}),
        otherwise=("land.before-commit@2=kill-driver", {"ReplayBatch"}),
    )
    result = rig.run(crash=crash)
    assert isinstance(result, Done), rig.story()
    rig.assert_exactly_once()
    assert sorted(rig.letters()) == sorted(malformed)
    counted = (
        "select batch, dead_letters from exactlyonce.batches where status = 'Landed' and dead_letters > 0 order by 1"
    )
    of_each_batch = "select batch, count(*) from exactlyonce.dead_letters group by 1 order by 1"
    assert rig.sql(counted) == rig.sql(of_each_batch), "each batch has counted its own, in its own transaction"
    assert verdicts <= set(rig.verdicts()), rig.story()
    # The stream continues behind what landed, in the children too.
    day.is_over = True
    _assert_each_is_read_once(rig, delivered)
    day.is_over = False
    assert len(rig.verdicts()) == len(verdicts) + 2, f"no driver ended because a call had failed\n{rig.story()}"
    _assert_the_first_malformed_record_halts(rig, malformed)


def _assert_each_is_read_once(rig: KinesisRig, delivered: Delivered) -> None:
    """A stream on which nothing strikes asks for each record once, beside the last one that landed of each shard.

    Each shard that is open has new records.
    """
    before = {place[:2] for place in rig.places.values()} | {letter[:2] for letter in rig.letters()}
    last_landed = {max(number for where, number in before if where == shard_id) for shard_id, _ in before}
    known = set(rig.sizes)
    delivered.clear()
    rig.put(40)
    assert isinstance(rig.run(), Done), rig.story()
    rig.assert_exactly_once()
    new = {number: size for number, size in rig.sizes.items() if number not in known}
    assert {number: delivered.times[number] for number in new} == dict.fromkeys(new, 1)
    assert {number: delivered.data_bytes[number] for number in new} == new, "and each byte of it"
    assert delivered.times.keys() - new.keys() <= last_landed
    held = {place[0] for place in rig.places.values() if place[1] in new}
    with_new = [each for each in delivered.calls if each & new.keys()]
    assert len(with_new) == len(held), "the new records of a shard came with one call"
    assert len(delivered.calls) == 3 * len(held), "and two of a launch ask for the last one that landed"


def _assert_the_first_malformed_record_halts(rig: KinesisRig, malformed: Sequence[Letter]) -> None:
    """Without dead letters it halts the stream and is named."""
    rig.put(4)
    letters = rig.put_malformed()
    strict = {"spec.source.format.onMalformed": "Fail", "spec.recovery.maxFailuresPerBatch": 1}
    halted = rig.run(changes=strict)
    assert isinstance(halted, Halted), rig.story()
    assert "set source.format.onMalformed to DeadLetter" in halted.message
    assert any(
        f"Malformed record in stream {rig.name} shard {letter.shard} sequence number {letter.sequence_number} "
        f"sub-sequence number {letter.sub_sequence_number}: {letter.message}" in halted.message
        for letter in letters
    ), halted.message
    assert len(rig.letters()) == len(malformed), "nothing of that batch has landed"


def test_a_stream_whose_ledger_is_lost_within_aggregates_goes_on_in_another_folder_behind_its_rows(
    kinesis: Kinesis, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    former, later = tmp_path / "former", tmp_path / "later"
    rig = KinesisRig(kinesis, postgres_18, tmp_path, name)
    rig.overrides |= {
        "spec.sink": {"files": {"path": str(former), "includePositions": True}},
        "spec.ledger": {"objectLog": {"location": str(tmp_path / "ledger")}},
        "spec.transform": {"sql": "select id, _stream, _shard, _position from source"},
        "spec.source.kinesis.maxRecordsPerTrigger": 97,
        "spec.recovery.maxFailuresPerBatch": 1,
    }
    rig.put(160)
    kinesis.split(name, shard(0))
    assert isinstance(rig.run(crash="batch.begun@5=raise"), Halted), rig.story()
    assert len(ids_in([*former.glob("*.parquet")])) == 3 * 97, rig.story()
    shutil.rmtree(tmp_path / "ledger")
    description = tmp_path / "stream.yaml"
    description.write_text(yaml.safe_dump(rig.document()))
    folders = ["--state", str(tmp_path / "state"), "--secrets", str(rig.secrets)]
    recovered = CliRunner().invoke(main, ["recover", str(description), *folders])
    assert (recovered.exit_code, recovered.stderr) == (0, ""), recovered.output
    start = yaml.safe_load(recovered.stdout[recovered.stdout.index("start:") :])["start"]
    assert sorted(start["positions"]) == [shard(number) for number in range(SHARDS)]
    assert any(":" in position for position in start["positions"].values()), "one is within an aggregate"

    kinesis.merge(name, shard(2), shard(3))
    rig.put(40)
    rig.overrides |= {
        "metadata.name": f"{name}-later",
        "spec.sink": {"files": {"path": str(later), "includePositions": True}},
        "spec.ledger": {"objectLog": {"location": str(tmp_path / "later-ledger")}},
        "spec.checkpoint": {"local": {"path": str(tmp_path / "later-checkpoint")}},
        "spec.source.kinesis.maxRecordsPerTrigger": 4000,
        "spec.source.kinesis.start": start,
    }
    assert isinstance(rig.run(), Done), rig.story()
    files = [path for folder in (former, later) for path in folder.glob("*.parquet")]
    assert ids_in(files) == Counter(rig.produced), rig.story()


HANDED_OVER_IDS = int(os.environ.get("HANDED_OVER_IDS", "100000"))


@only_in_full  # without Spark: tests/integration/test_kinesis_client_library.py
def test_streams_and_a_kinesis_client_library_hand_a_data_stream_to_each_other_and_each_id_is_taken_once(
    kinesis: Kinesis, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    table = {"tableName": "shop-orders", "endpoint": kinesis.endpoint}
    shared = {
        "spec.source.kinesis.streamName": name,
        "spec.source.kinesis.leaseTable": table,
        # Batches end inside aggregates of ten.
        "spec.source.kinesis.maxRecordsPerTrigger": HANDED_OVER_IDS * 8 // 100 - 7,
    }
    first = KinesisRig(kinesis, postgres_18, tmp_path / "first", name, **shared)
    start = {"spec.source.kinesis.start": {"from": "LeaseTable"}}
    second = KinesisRig(kinesis, postgres_18, tmp_path / "second", f"{name}x", **shared, **start)
    given: list[int] = []

    def consume(most: int) -> None:
        records = kcl.consume(kinesis, name, "shop-orders", tmp_path / "kcl", most, seconds=600)
        given.extend(json.loads(record.data)["id"] for record in records)

    def taken() -> Counter[int]:
        return first.counts() + second.counts() + Counter(given)

    def is_inside_an_aggregate() -> bool:
        of_each, found = Counter(place[:2] for place in first.places.values()), taken()
        of_taken = Counter(first.places[each][:2] for each in found.elements())
        return any(of_taken[record] < of_each[record] for record in of_taken)

    def assert_each_once() -> None:
        found, expected = taken(), Counter(range(len(first.produced)))
        lost, doubled = sorted((expected - found).elements()), sorted((found - expected).elements())
        told = f"{len(lost)} lost, {len(doubled)} doubled\n{first.story()}\n{second.story()}"
        assert (lost[:20], doubled[:20]) == ([], []), told

    # Suspended in the middle, behind a split, and inside of aggregates; the library continues there, through a merge.
    first.put(HANDED_OVER_IDS // 40, aggregate_each=1)
    kinesis.split(name, shard(0))
    first.put(HANDED_OVER_IDS // 40, aggregate_each=1)
    assert isinstance(first.run(until=lambda: first.landed_batch() >= 3), Done), first.story()
    assert first.landed() < len(first.produced)
    assert is_inside_an_aggregate()
    kinesis.merge(name, shard(2), shard(3))
    first.put(HANDED_OVER_IDS // 50, aggregate_each=1)
    consume(len(first.produced) - first.landed() - 7)
    assert is_inside_an_aggregate()
    assert taken().most_common(1)[0][1] == 1, "nothing twice"
    # The second stream continues where the library has stopped, and the library behind it.
    kinesis.split(name, shard(1))
    first.put(HANDED_OVER_IDS * 3 // 32)
    assert isinstance(second.run(), Done), second.story()
    assert_each_once()
    first.put(40)
    consume(len(first.produced) - sum(taken().values()))
    assert_each_once()
    assert len(first.produced) >= HANDED_OVER_IDS
    for rig in (first, second):
        assert "LandedNotShown" not in [kind for kind, _ in rig.events], rig.story()
