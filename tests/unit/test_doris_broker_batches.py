"""A batch into Doris by broker load, with the batch loop and the ledger's rules as they are; drivers die, ids are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress

import pytest

from exactlyonce.errors import Unreachable
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.fence import claim_epoch, raise_epoch
from exactlyonce.ledger.publish import record_answers
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, Ranges
from exactlyonce_spark import crash_points
from exactlyonce_spark.connectors.doris.broker_loads import FileElsewhere, OtherColumns
from exactlyonce_spark.connectors.doris.client import DorisRefused, DorisUnreachable
from exactlyonce_spark.staged_loads import SubmissionRefused
from exactlyonce_spark.two_phase_finish import LoadsInDoubt
from exactlyonce_spark.two_phase_submit import RowsPartlyLoaded, RowsRefused
from testbed.doris.broker_loads import BrokerFault
from testbed.doris.cluster import Login
from testbed.doris.servers import StandIn
from testbed.doris.tables import Column, Table
from testbed.doris.transactions import Refused
from tests.doris import DATABASE, PASSWORD, doris_with_files
from tests.doris_broker import ALL, READER, BrokerWorld, Folder
from tests.ledgers import STREAM, new_stream
from tests.staged_stream import OF_A_STAGED_BATCH, OF_A_STAGED_FINISH
from tests.two_phase_stream import READS, Killed, killed_at

NARROW = Table("orders", (Column("id", "TINYINT", is_key=True, nullable=False),))
"""1000, the first id of the second partition, does not fit into it."""
MINUTE = 60
SECRET = READER["AWS_SECRET_ACCESS_KEY"]


COMES_TWICE = ("task.prepared", "commit.answered", "submit.recorded", "submit.sent", "submit.file-removed")


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[StandIn, Folder]]:
    folder = Folder()
    with doris_with_files(folder.read) as server:
        yield server, folder


@pytest.fixture
def world(shared: tuple[StandIn, Folder]) -> Iterator[BrokerWorld]:
    """A world of its own over servers that are shared: everything in them is as new."""
    server, folder = shared
    folder.files.clear()
    broker, cluster = server.broker, server.cluster
    for held in (broker.jobs, broker.seen, broker.late, broker.faults, broker.shows):
        held.clear()
    broker.skips_missing = broker.holds = False
    cluster.logins["loader"] = Login(PASSWORD)
    cluster.rows.database.execute(f'delete from "{DATABASE}.orders"')
    yield BrokerWorld(folder=folder, server=server)
    crash_points.watch(lambda point: None)


def dies_at(world: BrokerWorld, point: str, times: int = 1) -> None:
    killed_at(point, crash_points.watch, times)
    with pytest.raises(Killed) if times == 1 or point in COMES_TWICE else nullcontext():
        world.land()


def answered(world: BrokerWorld, answers: Mapping[str, Answer]) -> None:
    epoch = Epoch(world.permit.epoch + 1)
    raise_epoch(world.ledger, new_stream(world.ledger), epoch, "ticket")
    record_answers(world.ledger, STREAM, epoch, BatchNumber(1), answers)
    world.permit = claim_epoch(world.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")[0]
    world.finish()


@contextmanager
def table(world: BrokerWorld, changed: Table) -> Iterator[None]:
    tables = world.server.cluster.tables[DATABASE]
    before, tables[changed.name] = tables[changed.name], changed
    yield
    tables[changed.name] = before


def landed_once(world: BrokerWorld) -> bool:
    return (world.seen(), world.status(), world.folder.files) == (ALL, BatchStatus.LANDED, {})


def test_a_batch_lands_by_one_statement_for_each_task_and_leaves_no_file(world: BrokerWorld) -> None:
    world.land()
    assert landed_once(world)
    statements = world.server.broker.seen
    assert [one.label.split(":")[4] for one in statements] == ["1", "1"]
    assert {(one.table, one.format, one.columns) for one in statements} == {("orders", "json", ("id",))}
    assert {one.properties["max_filter_ratio"] for one in statements} == {"0"}
    assert {one.properties["strict_mode"] for one in statements} == {"true"}
    assert all(":" not in one.file.removeprefix("s3://") for one in statements)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("point", OF_A_STAGED_BATCH)
def test_each_id_is_in_doris_once_wherever_a_driver_dies(world: BrokerWorld, point: str, times: int) -> None:
    dies_at(world, point, times)
    world.next_driver()
    world.land()
    assert landed_once(world)


@pytest.mark.parametrize("point", OF_A_STAGED_FINISH)
def test_each_id_is_in_doris_once_wherever_the_driver_that_finishes_dies(world: BrokerWorld, point: str) -> None:
    dies_at(world, "submit.sent")
    world.server.broker.faults.append(BrokerFault.JOB_CANCELLED)
    killed_at(point, crash_points.watch)
    with pytest.raises(Killed):
        world.next_driver()
    world.next_driver()
    world.land()
    assert landed_once(world)


@pytest.mark.parametrize("fault", list(BrokerFault))
@pytest.mark.parametrize("times", [1, 2])
def test_each_id_is_in_doris_once_whatever_goes_wrong_there(world: BrokerWorld, fault: BrokerFault, times: int) -> None:
    world.server.broker.faults += [fault] * times
    for step in (world.land, world.next_driver, world.next_driver, world.next_driver, world.land):
        with suppress(Unreachable, SubmissionRefused):
            step()
    assert landed_once(world)
    world.server.broker.deliver()
    world.server.broker.run_all()
    assert landed_once(world), "a statement that comes late finds no file"


@pytest.mark.parametrize("state", ["ETL", "RETRY", "UNKNOWN", "COMMITTED", "QUORUM_FINISHED"])
def test_a_load_in_a_state_that_is_not_final_is_waited_on(world: BrokerWorld, state: str) -> None:
    world.server.broker.shows += [state] * 3
    world.land()
    assert landed_once(world)
    assert len(world.pauses) >= 3


def test_a_load_that_does_not_end_ends_the_driver_and_not_the_batch(world: BrokerWorld) -> None:
    world.server.broker.holds = True
    with pytest.raises(DorisUnreachable, match=r"is PENDING after \d+ seconds; the next driver asks again"):
        world.land()
    world.server.broker.holds = False
    world.next_driver()
    assert landed_once(world)


def test_a_file_whose_writing_is_not_answered_is_written_under_another_name(world: BrokerWorld) -> None:
    world.folder.lost += [True, False]
    seen: list[int] = []
    crash_points.watch(lambda point: seen.append(len(world.folder.files)) if point == "batch.rows-written" else None)
    world.land()
    assert (world.seen(), seen) == (ALL, [3]), "one that was carried out though nobody heard of it"
    assert len(world.folder.files) == 1
    world.next_driver()
    assert landed_once(world)


def test_small_tasks_are_prepared_by_http_and_large_ones_wait_in_files(world: BrokerWorld) -> None:
    small, large = (bytes_of(world, one) for one in tasks_by_size(world))
    assert small < large
    world.stages_from_bytes = large
    world.land()
    assert landed_once(world)
    assert len(world.server.broker.seen) == 1


def tasks_by_size(world: BrokerWorld) -> list[Ranges]:
    return sorted((Ranges({key: span}) for key, span in READS.items()), key=lambda one: bytes_of(world, one))


def bytes_of(world: BrokerWorld, ranges: Ranges) -> int:
    return sum(piece.nbytes for piece in world.rows(ranges))


def test_rows_that_do_not_fit_halt_the_stream_until_the_table_is_altered(world: BrokerWorld) -> None:
    with table(world, NARROW):
        with pytest.raises(RowsRefused, match="ETL_QUALITY_UNSATISFIED; msg:quality not good enough to cancel"):
            world.land()
        for _ in range(2):
            with pytest.raises(RowsRefused, match="Alter the table"):
                world.next_driver()
    labels = [one.label for one in world.server.broker.seen]
    assert len(labels) == len(set(labels)), "each label has one statement"
    world.next_driver()
    assert landed_once(world)


def test_a_login_that_may_not_read_the_files_halts_the_stream_and_is_not_told(world: BrokerWorld) -> None:
    world.reader = {**READER, "AWS_SECRET_ACCESS_KEY": "another-secret"}
    with pytest.raises(RowsRefused, match="SignatureDoesNotMatch") as told:
        world.land()
    assert "another-secret" not in str(told.value)
    assert READER["AWS_ACCESS_KEY_ID"] not in str(told.value)
    world.reader = READER
    world.next_driver()
    assert landed_once(world)


@pytest.mark.parametrize("answer", [Answer.REMOVED, Answer.COMPLETED])
def test_a_load_of_which_doris_counts_fewer_rows_halts_the_stream_until_a_person_has_made_the_table_whole(
    world: BrokerWorld, answer: Answer
) -> None:
    killed_at("submit.sent", crash_points.watch)
    with pytest.raises(Killed):
        world.land()
    job = next(iter(world.server.broker.jobs.values()))
    path = job.statement.file.removeprefix("s3://lake/staging/")
    world.folder.files[path] = b"".join(world.folder.files[path].splitlines(keepends=True)[:-1])
    with pytest.raises(RowsPartlyLoaded, match="with 4 rows, and these count"):
        world.next_driver()
    table, name = world.server.cluster.rows.database, f'"{DATABASE}.orders"'
    if answer is Answer.REMOVED:
        table.execute(f"delete from {name} where id < 5")
    else:
        table.execute(f"insert into {name} (id) values (4)")
    answered(world, {one.label: answer for one in world.decided().committables})
    assert landed_once(world)
    assert bool(world.read_again) == (answer is Answer.REMOVED)


def test_a_statement_that_is_refused_is_recorded_as_not_sent(world: BrokerWorld) -> None:
    dies_at(world, "batch.decided")
    world.server.cluster.logins["loader"] = Login(PASSWORD, frozenset({"SELECT"}))
    with pytest.raises(SubmissionRefused, match="Access denied"):
        world.next_driver()
    assert [load.staged and load.staged.submitted_at_milliseconds for load in world.decided().committables] == [
        None
    ] * 2
    world.server.cluster.logins["loader"] = Login(PASSWORD)
    world.next_driver()
    assert landed_once(world)
    assert not world.read_again


@pytest.mark.parametrize("point", ["submit.recorded", "commit.answered"])
def test_none_is_believed_of_jobs_that_doris_hides_from_a_login_without_the_right_to_load(
    world: BrokerWorld, point: str
) -> None:
    """Otherwise rows that count would be made again as soon as the right is back."""
    dies_at(world, point)
    world.server.broker.run_all()
    world.server.cluster.logins["loader"] = Login(PASSWORD, frozenset({"SELECT"}))
    with pytest.raises((DorisRefused, SubmissionRefused), match="Access denied"):
        world.next_driver()
    world.server.cluster.logins["loader"] = Login(PASSWORD)
    world.next_driver()
    world.land()
    assert landed_once(world)


def test_a_load_that_doris_has_forgotten_halts_the_stream_and_a_person_answers(world: BrokerWorld) -> None:
    dies_at(world, "commit.answered")
    load = world.decided().committables[0]
    world.server.broker.jobs.clear()
    world.server.cluster.pass_time(11 * MINUTE)
    with pytest.raises(LoadsInDoubt) as told:
        world.next_driver()
    assert f"SHOW TRANSACTION FROM `{DATABASE}` WHERE label = '{load.label}'" in str(told.value)
    answered(world, {one.label: Answer.COMMITTED for one in world.decided().committables})
    assert landed_once(world)


def test_a_transaction_that_doris_does_not_know_is_in_doubt_at_once(world: BrokerWorld) -> None:
    dies_at(world, "submit.sent", 2)
    world.server.broker.run_all()
    first = next(iter(world.server.broker.jobs.values()))
    first.state, first.error = type(first.state).CANCELLED, "type:TXN_UNKNOWN; msg:transaction is not found"
    with pytest.raises(LoadsInDoubt, match="1 of its loads"):
        world.next_driver()


def test_a_decided_file_of_another_location_is_neither_submitted_nor_taken_for_removed(world: BrokerWorld) -> None:
    dies_at(world, "batch.decided")
    world.folder.location = "s3a://lake/other"
    try:
        with pytest.raises(FileElsewhere, match="name the former location again"):
            world.next_driver()
    finally:
        world.folder.location = "s3a://lake/staging"
    assert world.seen() == Counter()
    world.next_driver()
    assert landed_once(world)


def test_a_decided_file_with_other_columns_than_the_query_has_now_is_not_submitted(world: BrokerWorld) -> None:
    """Doris makes NULL of a column that a file does not have, and counts the row."""
    dies_at(world, "batch.decided")
    world.columns = ("id", "total")
    for _ in range(2):
        with pytest.raises(
            OtherColumns, match=r"waits in s3a://lake/staging/.+ \(id, total\): use the former transform"
        ):
            world.next_driver()
    world.columns = ("id",)
    assert world.seen() == Counter()
    assert all(one.staged and one.staged.submitted_at_milliseconds is None for one in world.decided().committables)
    world.next_driver()
    assert landed_once(world)


def test_a_driver_removes_files_of_earlier_epochs_and_of_no_other_stream(world: BrokerWorld) -> None:
    dies_at(world, "batch.rows-written")
    strangers = {"exactlyonce.other.0123456789abcdef/1.1.0-a.1.json": b"x", "readme.txt": b"y"}
    world.folder.files.update(strangers)
    world.next_driver()
    assert world.folder.files == strangers
    world.land()
    assert (world.seen(), world.status()) == (ALL, BatchStatus.LANDED)


def test_a_query_port_that_does_not_answer_is_waited_for(world: BrokerWorld) -> None:
    world.server.stop("query")
    try:
        with pytest.raises(DorisUnreachable, match="No frontend of Doris answers at its query port"):
            world.land()
    finally:
        world.server.start("query")
    world.next_driver()
    assert landed_once(world)


@pytest.mark.parametrize("fraction", ["", ".000000"])
def test_the_clock_is_that_of_doris_in_whole_seconds(world: BrokerWorld, fraction: str) -> None:
    world.server.broker.fraction_of_clock = fraction
    try:
        assert world.broker_loads().now_milliseconds() == world.server.cluster.milliseconds // 1000 * 1000
    finally:
        world.server.broker.fraction_of_clock = ""


def test_a_clock_that_tells_no_time_is_no_answer(world: BrokerWorld) -> None:
    world.server.broker.fraction_of_clock = " o'clock"
    try:
        with pytest.raises(DorisUnreachable, match="answered what Doris never does"):
            world.broker_loads().now_milliseconds()
    finally:
        world.server.broker.fraction_of_clock = ""


def test_a_wrong_password_is_told_without_the_password(world: BrokerWorld) -> None:
    world.server.cluster.logins["loader"] = Login("another")
    with pytest.raises(DorisRefused, match="Access denied for user") as told:
        world.broker_loads().now_milliseconds()
    assert PASSWORD not in str(told.value)


@pytest.mark.parametrize(
    "words",
    [f"errCode = 2, syntax error at {SECRET[:8]}", f"== SQL == LOAD LABEL {SECRET[:8]}", f"errCode = 2, near {SECRET}"],
)
def test_words_of_doris_that_may_show_the_statement_are_left_out(
    world: BrokerWorld, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies_at(world, "batch.decided")

    def refuse(user: str, statement: object) -> None:
        raise Refused(words)

    with monkeypatch.context() as patched:
        patched.setattr(world.server.broker, "submit", refuse)
        with pytest.raises((DorisUnreachable, SubmissionRefused)) as told:
            world.next_driver()
    assert SECRET not in str(told.value)
    assert SECRET[:8] not in str(told.value)
