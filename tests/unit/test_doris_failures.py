"""What a load that Doris does not take leads to: the batch fails and may be quarantined, the stream halts, or it waits.

Each case is a row of the table in docs/adr/0037. The stand-in answers; what follows is told by the functions that decide it,
from the error itself and from the text that Spark makes of one in a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from exactlyonce.api.recovery import Recovery
from exactlyonce.api.status import ConsecutiveFailures
from exactlyonce.connectors.doris.load_failures import (
    NotAllowed,
    NotNow,
    RowsRefused,
    failure_of_backend,
    failure_of_frontend,
)
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.port import Ended
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.restart import HaltStream, Restart, after_ending
from exactlyonce_spark.connectors.doris.loads import Loads
from exactlyonce_spark.failures import ending_of, refused_rows_of
from testbed.doris.cluster import Fault, TwoPhases
from testbed.doris.cluster import Login as LoginThere
from testbed.doris.servers import StandIn
from tests.doris import client, doris, ids, lines, load, operate

GOOD = lines({"id": 1, "note": "a"}, {"id": 2, "note": None})
TOO_LONG = lines({"id": 1, "note": "x" * 21}, {"id": 2, "note": None})
TRIES = 5
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FROM_FRONTEND = "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = "

OF_THE_ROWS = [
    "[DATA_QUALITY_ERROR]Encountered unqualified data, stop processing",
    "[DATA_QUALITY_ERROR]Parse json data failed. code: 3, src: {timeout -235 access denied}",
    "[CANCELLED]cancelled: [DATA_QUALITY_ERROR]too many filtered rows",
    "too many filtered rows",
]
OF_THE_LOAD = [
    f"{FROM_FRONTEND}unknown reference column, column=users, reference=usr",
    f"{FROM_FRONTEND}unknown reference column, column=timeout, reference=rpc",
    f"{FROM_FRONTEND}column has no default value, column=added",
    f"{FROM_FRONTEND}No matching function with signature: hll_hsah(varchar(*)).",
    "[INVALID_ARGUMENT]Invalid mem limit format",
    f"{FROM_FRONTEND}no such function in expression `timeout`",
]
TO_WAIT_FOR = [
    "[E-235]failed to init rowset builder. version count: 2001, exceed limit: 2000, tablet: 10111",
    "[INTERNAL_ERROR]tablet writer write failed, tablet_id=27417, txn_id=32813, err=-235, host: 10.0.0.1",
    f"{FROM_FRONTEND}current running txns on db 10006 is 1000, larger than limit 1000",
    f"{FROM_FRONTEND}get table read lock timeout, database=shop,table=orders",
    "[ANALYSIS_ERROR]TStatus: errCode = 3, detailMessage = tablet 10 alive replica num 0 < load required replica num 1",
    "[E-1603]previous schema change is not finished",
    "[MEM_LIMIT_EXCEEDED]process memory used 2.68 GB exceed limit 2.47 GB",
    "[THRIFT_RPC_ERROR]failed to call frontend service",
    "[INTERNAL_ERROR]failed to send brpc batch, error=Host is down",
    "[INTERNAL_ERROR]tablet writer write failed, tablet_id=27417, txn_id=32813, err=-232, host: 10.0.0.1",
    "[INTERNAL_ERROR]cancelled: [E-240]have not get FE Master heartbeat yet",
    "[INTERNAL_ERROR]cancelled: closed",
    "failed to call frontend service",
    "[INTERNAL_ERROR]failed to open tablet writer, error=end of file",
]
OTHERS = [
    "[INTERNAL_ERROR]something that nobody has seen\n\t0# brpc::policy::ProcessRpcRequest",
    "[E-208]checksum error",
    "a message of an old server",
]


@pytest.fixture
def server() -> Iterator[StandIn]:
    with doris() as stand_in:
        yield stand_in


def problem_of(server: StandIn, body: bytes = GOOD, rows: int = 2) -> ExactlyOnceError:
    """Return the error of a load that does not come to be prepared; no row is seen by then."""
    before = ids(server)
    with pytest.raises(ExactlyOnceError) as told:
        Loads(client(server.frontend), TRIES, lambda _: None).prepare("mine", ("id", "note"), lambda: [body], rows)
    assert ids(server) == before
    return told.value


def told_by(problem: ExactlyOnceError) -> tuple[Exception, Exception]:
    """Return an error of the driver's own, and what Spark tells of it where a task has raised it."""
    kind = type(problem)
    return problem, RuntimeError(
        f"Job aborted.\n  File x\n{kind.__module__}.{kind.__qualname__}: {problem}\n\tat org.apache"
    )


def endings(problem: ExactlyOnceError, *, in_batch: bool = True) -> set[Ending]:
    """Return how a driver ends by an error of its own, and by one that a task has raised."""
    return {ending_of(one, in_batch=in_batch)[0] for one in told_by(problem)}


def refused_rows(problem: ExactlyOnceError) -> set[int | None]:
    """Return the number of refused rows that a driver tells, by an error of its own and by one of a task."""
    return {refused_rows_of(ending_of(one, in_batch=True)[1]) for one in told_by(problem)}


def step_after(ending: Ending) -> HaltStream | Restart:
    """Return what follows where one failure of a batch is as many as there may be."""
    ended = Ended("the process is gone", LastMessage(ending, "told", 7), "")
    once = Recovery(max_failures_per_batch=1)
    step = after_ending(ended, None, None, None, ConsecutiveFailures(), once, NOW)
    assert isinstance(step, HaltStream | Restart)
    return step


def assert_its_batch_is_to_blame(problem: ExactlyOnceError) -> None:
    (ending,) = endings(problem)
    step = step_after(ending)
    assert isinstance(step, HaltStream)
    assert step.poison == BatchNumber(7), "onPoisonBatch decides"


def assert_the_stream_halts_and_no_batch_is_to_blame(problem: ExactlyOnceError) -> None:
    (ending,) = endings(problem)
    step = step_after(ending)
    assert isinstance(step, HaltStream)
    assert step.poison is None


def assert_the_stream_waits(problem: ExactlyOnceError) -> None:
    (ending,) = endings(problem)
    step = step_after(ending)
    assert isinstance(step, Restart)
    assert step.at > NOW
    assert step.consecutive_failures.batch_failures == 0


def test_rows_that_do_not_fit_the_table_are_to_blame_on_their_batch(server: StandIn) -> None:
    problem = problem_of(server, TOO_LONG)
    assert_its_batch_is_to_blame(problem)
    assert refused_rows(problem) == {1}
    assert "refuses 1 of 2 rows" in str(problem)
    assert endings(problem, in_batch=False) == {Ending.REFUSED}, "of a decided batch there is nothing to pass over"


@pytest.mark.parametrize("message", OF_THE_ROWS)
def test_rows_that_do_not_fit_are_known_without_a_number_of_them(server: StandIn, message: str) -> None:
    server.cluster.fails_with += [message]
    problem = problem_of(server)
    assert_its_batch_is_to_blame(problem)
    assert refused_rows(problem) == {None}
    assert len(server.seen) == 2, "tried once: a frontend was asked, and a backend"


def test_another_number_of_rows_than_was_sent_is_to_blame_on_the_batch(server: StandIn) -> None:
    assert_its_batch_is_to_blame(problem_of(server, rows=3))


@pytest.mark.parametrize("message", OTHERS)
def test_a_failure_that_each_try_is_answered_with_is_to_blame_on_the_batch(server: StandIn, message: str) -> None:
    server.cluster.fails_with += [message] * TRIES
    problem = problem_of(server)
    assert_its_batch_is_to_blame(problem)
    assert "took none of 2 rows in 5 tries" in str(problem)
    assert endings(problem, in_batch=False) == {Ending.FAILED}, "a decided batch is finished by a later driver"


@pytest.mark.parametrize("message", OF_THE_LOAD)
def test_a_load_that_no_rows_would_make_valid_halts_the_stream(server: StandIn, message: str) -> None:
    server.cluster.fails_with += [message] * TRIES
    problem = problem_of(server)
    assert_the_stream_halts_and_no_batch_is_to_blame(problem)
    assert "sink.doris.columns" in str(problem)


@pytest.mark.parametrize("message", TO_WAIT_FOR)
def test_what_passes_by_waiting_is_waited_for_and_counts_as_no_failure_of_a_batch(
    server: StandIn, message: str
) -> None:
    server.cluster.fails_with += [message] * TRIES
    assert_the_stream_waits(problem_of(server))


@pytest.mark.parametrize("passing", [TO_WAIT_FOR[0], None])
def test_one_try_without_a_final_answer_blames_nobody(server: StandIn, passing: str | None) -> None:
    server.cluster.fails_with += [*OTHERS, passing or OTHERS[0], OF_THE_LOAD[0]]
    server.cluster.faults += [] if passing is not None else [Fault.PREPARE_ANSWER_LOST]
    assert_the_stream_waits(problem_of(server))


def test_servers_that_are_away_are_waited_for(server: StandIn) -> None:
    server.stop("backend")
    assert_the_stream_waits(problem_of(server))
    server.stop("frontend")
    assert_the_stream_waits(problem_of(server))


def test_a_missing_right_and_two_phases_that_are_off_halt_the_stream(server: StandIn) -> None:
    with server.cluster.settings(two_phases=TwoPhases.DISABLED):
        assert_the_stream_halts_and_no_batch_is_to_blame(problem_of(server))
    server.cluster.logins["loader"] = LoginThere("secret", frozenset({"SELECT"}))
    problem = problem_of(server)
    assert_the_stream_halts_and_no_batch_is_to_blame(problem)
    asked_again, _ = ending_of(problem, in_batch=True, asks_again=True)
    assert isinstance(step_after(asked_again), Restart), "an operator asks again later, as with any login"


def test_a_table_that_is_missing_is_told_whatever_its_name_is() -> None:
    said = "errCode = 2, detailMessage = Unknown table 'rpc_timeout'"
    assert isinstance(failure_of_frontend(said), NotAllowed)
    assert isinstance(failure_of_backend({"Message": f"[ANALYSIS_ERROR]TStatus: {said}"}), NotAllowed)


def test_a_label_that_a_stranger_committed_halts_the_stream(server: StandIn) -> None:
    operate(server, "commit", txn_id=str(load(server, "mine", lines({"id": 9}))["TxnId"]))
    assert_the_stream_halts_and_no_batch_is_to_blame(problem_of(server))


def test_no_text_of_a_record_makes_its_failure_one_to_wait_for() -> None:
    said = "[DATA_QUALITY_ERROR]Parse json data failed, src: [E-235] no alive backend, memory limit exceeded, timeout"
    assert isinstance(failure_of_backend({"Message": said, "NumberFilteredRows": 0}), RowsRefused)


@pytest.mark.parametrize("said", ["No backend load available.", "errCode = 2, detailMessage = Node is not ready"])
def test_a_frontend_without_a_backend_is_waited_for(said: str) -> None:
    assert failure_of_frontend(said) == NotNow(said.rstrip("."))
