"""Two frontends over one state: the first one dies at any request of a batch, is not the master, or is not ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import pytest

from exactlyonce.connectors.doris.answers import LabelState, Settled, Taken
from exactlyonce.errors import Unreachable
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce_spark import crash_points
from exactlyonce_spark.connectors.doris.client import DorisClient, DorisRefused, DorisUnreachable, Operation
from exactlyonce_spark.connectors.doris.exchange import Node
from testbed.doris.servers import StandIn
from tests.doris import client, doris, doris_with_files, ids, lines
from tests.doris_broker import ALL, BrokerWorld, Folder
from tests.unit.test_doris_batches import DorisWorld

FIRST = ("frontend", "query")
"""What dies with the first frontend: both of its ports."""


@dataclass
class Death:
    """The first frontend dies at a request: before it answers it, or behind its answer; another one becomes the master."""

    server: StandIn
    number: int
    when: str
    seen: int = 0
    is_dead: bool = False

    def __call__(self, name: str, when: str) -> bool:
        if self.is_dead or name not in FIRST or when != self.when:
            return False
        self.seen += 1
        if self.seen <= self.number:
            return False
        self.is_dead = True
        for one in FIRST if self.server.files is not None else FIRST[:1]:
            self.server.stop(one)
        self.server.fail_over("frontend-2")
        return True


@pytest.fixture
def server() -> Iterator[StandIn]:
    with doris(frontends=2) as stand_in:
        yield stand_in


@pytest.fixture
def both(server: StandIn) -> DorisClient:
    return client(*server.frontends)


@pytest.mark.parametrize("when", ["before", "behind"])
def test_each_id_is_in_doris_once_at_whatever_request_the_first_frontend_dies(when: str) -> None:
    """One driver lands the batch: a frontend that gives no answer has done nothing, so the other one is asked the same."""
    for number in count():
        with doris(frontends=2) as server:
            server.happens = death = Death(server, number, when)
            world = DorisWorld(server=server)
            world.land()
            assert (world.seen(), world.status()) == (ALL, BatchStatus.LANDED)
        if not death.is_dead:
            break
    assert number == 4, "two loads and two commits"


@pytest.mark.parametrize("when", ["before", "behind"])
def test_each_id_is_in_doris_once_at_whatever_statement_of_broker_loads_the_first_frontend_dies(when: str) -> None:
    """A statement that is not answered is never sent again, so then it is the next driver that lands the batch."""
    for number in count():
        folder = Folder()
        with doris_with_files(folder.read, frontends=2) as server:
            server.happens = death = Death(server, number, when)
            world = BrokerWorld(folder=folder, server=server)
            for step in (world.land, world.next_driver, world.land):
                with suppress(Unreachable):
                    step()
            server.broker.run_all()
            assert (world.seen(), world.status(), folder.files) == (ALL, BatchStatus.LANDED, {})
            labels = [one.label for one in server.broker.seen]
            assert len(labels) == len(set(labels)), "no label has two statements"
        if not death.is_dead:
            break
    assert number > 8, "the clock, two statements and what became of each"
    crash_points.watch(lambda point: None)


def test_the_first_frontend_is_asked_as_long_as_it_answers(server: StandIn, both: DorisClient) -> None:
    both.load("a", ("id",), lambda: [lines({"id": 1})])
    both.schema()
    assert {one.server for one in server.seen} == {"frontend", "backend"}


def test_a_frontend_that_is_not_the_master_sends_a_question_about_a_label_there(
    server: StandIn, both: DorisClient
) -> None:
    server.master = "frontend-2"
    answer = both.load("a", ("id",), lambda: [lines({"id": 1})])
    assert isinstance(answer, Taken)
    assert both.state_of("a") is LabelState.PRECOMMITTED
    assert [one.server for one in server.seen][-2:] == ["frontend", "frontend-2"]


def test_a_frontend_that_sends_us_to_a_master_that_is_gone_is_not_believed(server: StandIn, both: DorisClient) -> None:
    """It has not heard yet that the master is gone; the other one has."""
    server.master = "frontend-3"
    server._addresses["frontend-3"] = "127.0.0.1:1"
    heard = {"frontend": 0}

    def new_master(name: str, when: str) -> bool:
        heard["frontend"] += name == "frontend"
        if name == "frontend-2":
            server.master = "frontend-2"
        return False

    server.happens = new_master
    assert both.state_of("a") is LabelState.UNKNOWN
    assert heard["frontend"]


def test_masters_that_are_gone_are_named(server: StandIn, both: DorisClient) -> None:
    server.master = "frontend-3"
    server._addresses["frontend-3"] = "127.0.0.1:1"
    first, second = server.frontends
    with pytest.raises(
        DorisUnreachable,
        match=rf"\(127\.0\.0\.1:1, to which {first} sends us: Connection refused; 127\.0\.0\.1:1, to which {second} sends us",
    ):
        both.state_of("a")


def test_a_frontend_that_is_not_ready_is_passed_over(server: StandIn, both: DorisClient) -> None:
    server.unready.add("frontend")
    server.fail_over("frontend-2")
    answer = both.load("a", ("id",), lambda: [lines({"id": 1})])
    assert isinstance(answer, Taken)
    assert both.settle(Operation.COMMIT, answer.transaction_id) is Settled.DONE_NOW
    assert (both.state_of("a"), ids(server)) == (LabelState.VISIBLE, [1])
    assert both.schema().columns


def test_frontends_of_which_none_is_ready_are_waited_for(server: StandIn, both: DorisClient) -> None:
    """Before, the message halted the stream as a refusal."""
    server.unready |= {"frontend", "frontend-2"}
    for ask in (both.schema, lambda: both.state_of("a"), lambda: both.load("a", ("id",), lambda: [b""])):
        with pytest.raises(DorisUnreachable, match="is not ready, please wait for a while"):
            ask()


def test_a_refusal_is_not_asked_of_the_next_frontend(server: StandIn) -> None:
    with pytest.raises(DorisRefused):
        client(*server.frontends, password="another").schema()
    assert [one.server for one in server.seen] == ["frontend"]


def test_a_query_port_that_is_gone_in_the_middle_of_a_question_leaves_it_to_the_next_one() -> None:
    folder = Folder()
    with doris_with_files(folder.read, frontends=2) as server:
        cut = Counter[str]()

        def cuts(name: str, when: str) -> bool:
            cut[name] += 1
            return name == "query"

        server.happens = cuts
        loads = BrokerWorld(folder=folder, server=server).broker_loads()
        assert loads.query.frontends == tuple(Node("127.0.0.1", port) for port in server.query_ports)
        assert loads.now_milliseconds() == server.cluster.milliseconds // 1000 * 1000
    assert set(cut) == {"query", "query-2"}
