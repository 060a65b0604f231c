"""Statements of broker loads that Doris takes later, or never as they are; and files that are at another service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from exactlyonce.connectors.doris.staging import PROPERTIES
from exactlyonce.ledger.fence import Permit
from exactlyonce_spark import crash_points
from exactlyonce_spark.connectors.doris.broker_loads import FileElsewhere
from exactlyonce_spark.connectors.doris.target import DorisTarget
from exactlyonce_spark.staged_loads import NotTakenNow, SubmissionRefused
from testbed.doris.broker_loads import BrokerFault, Limits
from testbed.doris.servers import StandIn
from tests.doris import DATABASE, ORDERS, doris_with_files
from tests.doris_broker import ALL, BrokerWorld, Folder
from tests.two_phase_stream import Killed, killed_at

WITH_SEQUENCE = replace(ORDERS, has_sequence=True)
"""In Doris its model would be UNIQUE_KEYS; how rows of one key are chosen is not what is asked here."""
FORMER_SERVICE = "https://former.example"


@dataclass
class ChangedWorld(BrokerWorld):
    """The stream of `BrokerWorld` with `sink.doris.properties`."""

    properties: Mapping[str, str] = field(default_factory=dict)

    def target(self, permit: Permit | None = None) -> DorisTarget:
        target = super().target(permit)
        assert target.broker_loads is not None
        loads = target.broker_loads
        return replace(target, broker_loads=replace(loads, client=replace(loads.client, properties=self.properties)))


@pytest.fixture
def world() -> Iterator[ChangedWorld]:
    folder = Folder()
    with doris_with_files(folder.read) as server:
        yield ChangedWorld(folder=folder, server=server)
    crash_points.watch(lambda point: None)


def dies_at(world: ChangedWorld, point: str) -> None:
    killed_at(point, crash_points.watch)
    with pytest.raises(Killed):
        world.land()
    crash_points.watch(lambda point: None)


def labels_sent(server: StandIn) -> list[str]:
    return [one.label for one in server.broker.seen]


def test_a_load_that_doris_takes_no_more_of_now_is_submitted_once_another_one_has_ended(world: ChangedWorld) -> None:
    """So many jobs may wait in all of Doris, and a batch may have more tasks than that."""
    world.server.broker.limits = Limits(waiting_jobs=1)
    world.land()
    assert world.seen() == ALL
    assert world.folder.files == {}
    assert len(labels_sent(world.server)) == len(set(labels_sent(world.server))) == 3, "one of them was refused"


def test_where_only_loads_of_others_wait_the_next_driver_submits_and_no_row_is_read_again(world: ChangedWorld) -> None:
    world.server.broker.faults.append(BrokerFault.TOO_MANY_JOBS)
    with pytest.raises(
        NotTakenNow, match=r"more than 100 unfinished load jobs.*desired_max_waiting_jobs of the frontends"
    ):
        world.land()
    assert [one.staged and one.staged.submitted_at_milliseconds for one in world.decided().committables] == [None] * 2
    world.next_driver()
    assert world.seen() == ALL
    assert not world.read_again


def test_a_driver_that_dies_where_a_load_was_to_be_submitted_later_is_followed_by_one_that_submits_it(
    world: ChangedWorld,
) -> None:
    world.server.broker.limits = Limits(waiting_jobs=1)
    killed_at("submit.recorded", crash_points.watch, 3)
    with pytest.raises(Killed):
        world.land()
    world.next_driver()
    assert world.seen() == ALL
    assert world.folder.files == {}


@pytest.fixture
def sequenced(world: ChangedWorld) -> ChangedWorld:
    """The table was altered after the batch was decided: `ENABLE FEATURE "SEQUENCE_LOAD"`."""
    dies_at(world, "batch.decided")
    world.server.cluster.tables[DATABASE]["orders"] = WITH_SEQUENCE
    return world


def test_a_table_that_needs_a_sequence_column_refuses_the_statement_and_no_row_is_read_again(
    sequenced: ChangedWorld,
) -> None:
    for _ in range(3):
        with pytest.raises(SubmissionRefused, match="need to specify the sequence column"):
            sequenced.next_driver()
    assert not sequenced.read_again, "the statement has no job, so its file stays"
    assert len(sequenced.folder.files) == 2


def test_the_property_of_stream_load_names_the_sequence_column_of_a_broker_load(sequenced: ChangedWorld) -> None:
    sequenced.properties = {"function_column.sequence_col": "id"}
    sequenced.next_driver()
    assert sequenced.seen() == ALL
    assert {one.sequence for one in sequenced.server.broker.seen} == {"id"}
    assert not sequenced.read_again


def test_a_batch_that_was_decided_before_the_stream_went_over_to_stream_load_is_submitted_without_its_headers(
    world: ChangedWorld,
) -> None:
    dies_at(world, "batch.decided")
    world.properties = {"memtable_on_sink_node": "true", "partitions": "p1", "send_batch_parallelism": "2"}
    world.next_driver()
    assert world.seen() == ALL
    assert {one.properties["send_batch_parallelism"] for one in world.server.broker.seen} == {"2"}
    assert not {name for one in world.server.broker.seen for name in one.properties} & {
        "memtable_on_sink_node",
        "partitions",
    }
    assert "partitions" not in PROPERTIES


@pytest.mark.parametrize("point", ["batch.decided", "submit.recorded"])
def test_a_decided_file_at_another_service_is_neither_submitted_nor_taken_for_removed(
    world: ChangedWorld, point: str
) -> None:
    """A folder there may have the same name; what is removed from it keeps no late statement from its rows."""
    world.folder.service = FORMER_SERVICE
    dies_at(world, point)
    world.folder.service = "Amazon S3"
    with pytest.raises(FileElsewhere, match=f"at {FORMER_SERVICE}, and .*endpoint names Amazon S3: name the former"):
        world.next_driver()
    assert (world.seen(), world.read_again, len(world.folder.files)) == (Counter(), [], 2)
    world.folder.service = FORMER_SERVICE
    world.next_driver()
    assert world.seen() == ALL
