"""A batch into Doris by the batch loop and the ledger's rules as they are, over the stand-in; drivers die, ids are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exactlyonce.connectors.doris.spec import Tls
from exactlyonce.errors import Unreachable
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Ranges
from exactlyonce_spark import crash_points
from exactlyonce_spark.connectors.doris.client import DorisUnreachable
from exactlyonce_spark.connectors.doris.exchange import Node
from exactlyonce_spark.connectors.doris.fit import DorisFit
from exactlyonce_spark.connectors.doris.loads import Loads
from exactlyonce_spark.connectors.doris.target import DorisTarget
from exactlyonce_spark.connectors.doris.tls import trust_of
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.target import TwoPhaseTarget
from exactlyonce_spark.two_phase_finish import DecidedElsewhere, LoadsInDoubt
from testbed.doris.cluster import Fault
from testbed.doris.servers import StandIn
from tests.certificates import certificate
from tests.doris import DATABASE, client, doris, ids
from tests.ledgers import STREAM
from tests.two_phase_stream import OF_A_BATCH, OF_A_FINISH, READS, Killed, World, killed_at, span_of

OF_DORIS = tuple(point for point in OF_A_FINISH if point != "finish.aborted")
"""HTTP lists no open loads, so none is aborted at a start."""


@dataclass
class DorisWorld(World):
    """The stream of `World` with a table of Doris as its sink; an id says partition and offset."""

    server: StandIn = field(default_factory=StandIn)
    published_for: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    """What the resource names otherwise than the table that is there."""

    def target(self, permit: Permit | None = None) -> TwoPhaseTarget:
        loads = Loads(replace(client(*self.server.frontends), **self.changes), pause=lambda seconds: None)
        labels = LoadLabels(STREAM, "token-1")
        columns = (DorisFit("id", "`id`"),)
        return DorisTarget(loads, columns, labels, (permit or self.permit).epoch, self.published_for)

    def rows(self, ranges: Ranges) -> Sequence[Any]:
        return [
            pa.RecordBatch.from_pylist([{"id": 1000 * int(key.key) + at} for at in range(*span_of(span))])
            for key, span in ranges.items()
        ]

    def seen(self) -> Counter[int]:
        return Counter(ids(self.server))


ALL = Counter(1000 * int(key.key) + at for key, span in READS.items() for at in range(*span_of(span)))
HOUR = 3600


@pytest.fixture
def world() -> Iterator[DorisWorld]:
    with doris() as server:
        yield DorisWorld(server=server)
    crash_points.watch(lambda point: None)


def dies_at(world: DorisWorld, point: str, times: int = 1, watch: Callable[..., None] = crash_points.watch) -> None:
    killed_at(point, watch, times)
    comes_twice = point in ("task.prepared", "commit.answered")
    with pytest.raises(Killed) if times == 1 or comes_twice else nullcontext():
        world.land()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("point", OF_A_BATCH)
def test_each_id_is_in_doris_once_wherever_a_driver_dies(world: DorisWorld, point: str, times: int) -> None:
    dies_at(world, point, times)
    world.next_driver()
    world.land()
    assert (world.seen(), world.status()) == (ALL, BatchStatus.LANDED)
    world.server.cluster.pass_time(2 * HOUR)
    assert world.seen() == ALL, "what nobody decided is aborted by Doris"


@pytest.mark.parametrize(
    "changes", [{"frontends": (Node("elsewhere", 8030),)}, {"database": "attic"}, {"table": "others"}]
)
def test_a_decided_batch_is_asked_of_no_other_doris_than_the_one_that_prepared_it(
    world: DorisWorld, changes: dict[str, Any]
) -> None:
    """The other one may have a transaction with the same id: it would be committed, or taken for this one."""
    dies_at(world, "batch.decided")
    before = world.seen()
    world.changes = changes
    with pytest.raises(
        DecidedElsewhere, match=r"^Batch 1 is decided, .+ before \(shop\.orders at 127\.0\.0\.1:\d+\); name"
    ):
        world.next_driver()
    world.changes = {}
    assert world.seen() == before
    world.next_driver()
    assert world.seen() == ALL


def test_a_decided_batch_is_finished_by_the_same_doris_with_one_more_frontend(world: DorisWorld) -> None:
    dies_at(world, "batch.decided")
    target = world.target()
    assert isinstance(target, DorisTarget)
    both = (*target.loads.client.frontends, Node("127.0.0.1", 1))
    world.changes = {"frontends": both}
    world.next_driver()
    assert world.seen() == ALL


def test_a_decided_batch_lands_after_tls_was_turned_on_once_a_former_address_is_listed_as_the_message_says(
    tmp_path: Path,
) -> None:
    ours = certificate(tmp_path, "doris")
    with doris(frontends=2) as server:
        before, after = (Node("127.0.0.1", int(one.rpartition(":")[2])) for one in server.frontends)
        world = DorisWorld(server=server, changes={"frontends": (before,)})
        dies_at(world, "batch.decided")
        server.stop("frontend-2")
        server.certificate, server.secure, server.backend_scheme = ours, frozenset({"frontend"}), "http"
        server.start("frontend-2")
        world.changes = {"frontends": (after,), "trust": trust_of(Tls.FRONTENDS, ours.read_text())}
        with pytest.raises(DecidedElsewhere, match=r"list one of the former addresses in sink\.doris\.frontends"):
            world.next_driver()
        world.changes |= {"frontends": (after, before)}
        world.next_driver()
        assert world.seen() == ALL
    crash_points.watch(lambda point: None)


@pytest.mark.parametrize("point", OF_DORIS)
def test_rows_that_doris_aborted_after_an_hour_are_made_again_once(world: DorisWorld, point: str) -> None:
    dies_at(world, "batch.decided")
    world.server.cluster.pass_time(2 * HOUR)
    killed_at(point, crash_points.watch)
    with pytest.raises(Killed):
        world.next_driver()
    world.next_driver()
    world.land()
    assert (world.seen(), world.status()) == (ALL, BatchStatus.LANDED)


@pytest.mark.parametrize(("point", "seen"), [("batch.decided", Counter[int]()), ("batch.committed", ALL)])
def test_a_stream_that_was_down_for_fourteen_hours_halts_in_doubt_and_loads_nothing(
    world: DorisWorld, point: str, seen: Counter[int]
) -> None:
    """What is prepared is aborted after an hour and forgotten twelve hours later; what is committed, after twelve."""
    dies_at(world, point)
    world.server.cluster.pass_time(14 * HOUR)
    with pytest.raises(LoadsInDoubt, match="Batch 1 is decided") as told:
        world.next_driver()
    assert world.seen() == seen
    view = world.ledger.view(STREAM)
    assert view is not None
    assert view.decided is not None
    for one in view.decided.committables:
        assert f"SHOW TRANSACTION FROM `{DATABASE}` WHERE id = {one.transaction_id}" in str(told.value)
    assert f"SELECT COUNT(*) FROM `{DATABASE}`.`orders` WHERE" in str(told.value)


def test_rows_of_a_stream_that_was_down_for_thirteen_hours_behind_a_decision_are_made_again(world: DorisWorld) -> None:
    """An hour less, and Doris still knows that it has aborted them."""
    dies_at(world, "batch.decided")
    world.server.cluster.pass_time(13 * HOUR)
    world.next_driver()
    world.land()
    assert (world.seen(), world.status()) == (ALL, BatchStatus.LANDED)


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("times", [1, 2])
def test_each_id_is_in_doris_once_whatever_goes_wrong_there(world: DorisWorld, fault: Fault, times: int) -> None:
    world.server.cluster.faults += [fault] * times
    for step in (world.land, world.next_driver, world.next_driver, world.land):
        with suppress(Unreachable):
            step()
    world.server.cluster.publish()
    assert (world.seen(), world.status()) == (ALL, BatchStatus.LANDED)


def test_drivers_that_die_until_doris_takes_no_load_wait_an_hour_and_lose_no_id(world: DorisWorld) -> None:
    """What they prepared and nobody decided is left to Doris (docs/adr/0037), and counts among its running transactions."""
    world.server.cluster.limits.running = 5
    for _ in range(2):
        dies_at(world, "batch.rows-written")
        world.next_driver()
    crash_points.watch(lambda point: None)
    for _ in range(2):
        with pytest.raises(DorisUnreachable, match="current running txns on db"):
            world.land()
        world.next_driver()
    assert world.seen() == Counter(), "nothing that nobody decided is seen"
    world.server.cluster.pass_time(2 * HOUR)
    world.land()
    assert (world.seen(), world.status()) == (ALL, BatchStatus.LANDED)


def test_a_zombie_that_prepares_after_its_successor_commits_nothing(world: DorisWorld) -> None:
    zombie = world.target()
    world.next_driver()
    assert zombie.prepare(BatchNumber(1), "0-dead", world.rows(READS)) is not None
    world.land()
    world.server.cluster.pass_time(2 * HOUR)
    assert world.seen() == ALL


@pytest.mark.parametrize("point", ["task.prepared", "batch.decided", "commit.answered", "batch.committed"])
def test_each_id_is_in_doris_once_under_labels_that_name_no_epoch(world: DorisWorld, point: str) -> None:
    """Labels of Compatible; the rows of a decided batch that Doris aborted are made again, too."""
    world.published_for = "s3a://bucket/orders"
    dies_at(world, point)
    world.server.cluster.pass_time(2 * HOUR)
    for step in (world.next_driver, world.land):
        step()
    assert (world.seen(), world.status()) == (ALL, BatchStatus.LANDED)


def test_a_zombie_that_aborts_what_its_successor_has_decided_costs_no_id_under_a_shared_label(
    world: DorisWorld,
) -> None:
    world.published_for = "s3a://bucket/orders"
    zombie = world.target()
    world.next_driver()
    dies_at(world, "batch.decided")
    assert zombie.prepare(BatchNumber(1), "0-dead", world.rows(READS)) is not None
    world.next_driver()
    world.land()
    world.server.cluster.pass_time(2 * HOUR)
    assert (world.seen(), world.status()) == (ALL, BatchStatus.LANDED)
