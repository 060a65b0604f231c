"""The stand-in for Doris takes broker loads by MySQL's protocol as Doris' documentation and source say that Doris does.

The client is PyMySQL, which was not written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from testbed.doris.broker_loads import BrokerFault, FileDenied
from testbed.doris.cluster import Login
from testbed.doris.servers import StandIn
from tests.doris import DATABASE, PASSWORD, doris_with_files, ids, lines, load

FILE = "s3://lake/staging/a.json"
HOUR_SECONDS = 3600


class Files(dict[str, bytes]):
    """Files by their addresses; `good` is the key that may read them."""

    good = "reader"

    def read(self, address: str, properties: Any) -> bytes | None:
        if properties["s3.access_key"] != self.good:
            raise FileDenied("AccessDenied")
        return self.get(address)


@pytest.fixture
def files() -> Files:
    return Files({FILE: lines({"id": "1", "note": "one"}, {"id": "2", "note": None})})


@pytest.fixture
def server(files: Files) -> Iterator[StandIn]:
    with doris_with_files(files.read) as stand_in:
        yield stand_in


def connection(server: StandIn, user: str = "loader", password: str = PASSWORD) -> Any:
    return pymysql.connect(host="127.0.0.1", port=server.query_port, user=user, password=password, autocommit=None)


def run(server: StandIn, statement: str, user: str = "loader") -> list[dict[str, str]]:
    with connection(server, user) as connected, connected.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def statement_of(label: str, *, table: str = "orders", key: str = "reader", ratio: str = "0") -> str:
    """docs/sql-manual/…/BROKER-LOAD.md, and docs/…/broker-load-manual.md for JSON and S3."""
    return f"""
        LOAD LABEL `{DATABASE}`.`{label}`
        (
            DATA INFILE("{FILE}") INTO TABLE `{table}` FORMAT AS "json" (`id`, `note`)
            PROPERTIES ("read_json_by_line" = "true", 'num_as_string' = 'true')
        )
        WITH S3 ("s3.endpoint" = "http://s3", "s3.region" = "here", "s3.access_key" = "{key}", "s3.secret_key" = "b")
        PROPERTIES ("strict_mode" = "true", "max_filter_ratio" = "{ratio}");
    """


def shown(server: StandIn, label: str, user: str = "loader") -> list[dict[str, str]]:
    return run(server, f"SHOW LOAD FROM `{DATABASE}` WHERE LABEL = '{label}'", user)


def ended(server: StandIn, label: str) -> tuple[str, str, str]:
    server.broker.run_all()
    latest = shown(server, label)[-1]
    return latest["State"], latest["EtlInfo"], latest["ErrorMsg"]


def test_a_statement_is_taken_at_once_and_its_rows_count_when_it_has_finished(server: StandIn) -> None:
    run(server, statement_of("a"))
    assert ids(server) == []
    assert [shown(server, "a")[0]["State"] for _ in range(3)] == ["LOADING", "FINISHED", "FINISHED"]
    assert ids(server) == [1, 2]
    assert ended(server, "a") == ("FINISHED", "unselected.rows=0; dpp.abnorm.ALL=0; dpp.norm.ALL=2", "\\N")


def test_a_label_is_refused_while_a_load_has_it_and_free_again_once_that_is_cancelled(
    server: StandIn, files: Files
) -> None:
    run(server, statement_of("a"))
    with pytest.raises(pymysql.err.MySQLError, match=r"Label \[a\] has already been used\."):
        run(server, statement_of("a"))
    assert ended(server, "a")[0] == "FINISHED"
    with pytest.raises(pymysql.err.MySQLError, match="has already been used"):
        run(server, statement_of("a"))
    server.broker.faults.append(BrokerFault.JOB_CANCELLED)
    run(server, statement_of("b"))
    assert ended(server, "b")[0] == "CANCELLED"
    run(server, statement_of("b"))
    assert ended(server, "b")[0] == "FINISHED"
    assert [row["State"] for row in shown(server, "b")] == ["CANCELLED", "FINISHED"]
    assert ids(server) == [1, 1, 2, 2]


def test_a_label_of_a_stream_load_cancels_the_job_that_asks_for_it(server: StandIn) -> None:
    load(server, "a", lines({"id": 7}))
    run(server, statement_of("a"))
    state, _, error = ended(server, "a")
    assert state == "CANCELLED"
    assert "relate to txn" in error


@pytest.mark.parametrize(
    ("label", "why"),
    [("a b", "Label format error"), ("x" * 129, "Label format error")],
)
def test_a_label_that_doris_does_not_take_is_refused(server: StandIn, label: str, why: str) -> None:
    with pytest.raises(pymysql.err.MySQLError, match=why):
        run(server, statement_of(label))


def test_a_job_without_its_file_is_cancelled_and_so_is_one_whose_login_may_not_read_it(
    server: StandIn, files: Files
) -> None:
    run(server, statement_of("a", key="stranger"))
    assert "AccessDenied" in ended(server, "a")[2]
    files.clear()
    run(server, statement_of("b"))
    assert "No source files found in the specified paths" in ended(server, "b")[2]
    assert ids(server) == []


@pytest.mark.parametrize(("skips", "state"), [(False, "CANCELLED"), (True, "FINISHED")])
def test_a_file_that_goes_before_it_is_read_gives_no_row(
    server: StandIn, files: Files, skips: bool, state: str
) -> None:
    server.broker.skips_missing = skips
    run(server, statement_of("a"))
    assert shown(server, "a")[0]["State"] == "LOADING"
    files.clear()
    assert ended(server, "a")[0] == state
    assert ids(server) == []


def test_rows_that_do_not_fit_cancel_a_job_unless_they_may_be_left_out(server: StandIn, files: Files) -> None:
    files[FILE] = lines({"id": "1"}, {"id": "none"})
    run(server, statement_of("a"))
    assert ended(server, "a")[2] == "type:ETL_QUALITY_UNSATISFIED; msg:quality not good enough to cancel"
    assert ids(server) == []
    run(server, statement_of("b", ratio="0.5"))
    assert ended(server, "b")[1] == "unselected.rows=0; dpp.abnorm.ALL=1; dpp.norm.ALL=1"
    assert ids(server) == [1]


def test_jobs_are_forgotten_after_three_days_or_by_their_number(server: StandIn) -> None:
    run(server, statement_of("a"))
    ended(server, "a")
    server.cluster.pass_time(70 * HOUR_SECONDS)
    assert shown(server, "a")
    server.cluster.pass_time(3 * HOUR_SECONDS)
    assert not shown(server, "a")
    run(server, statement_of("b"))
    ended(server, "b")
    server.broker.limits.label_number = 0
    assert not shown(server, "b")


def test_who_has_no_right_to_load_is_refused_and_is_shown_no_job(server: StandIn) -> None:
    run(server, statement_of("a"))
    server.cluster.logins["reader"] = Login(PASSWORD, frozenset({"SELECT"}))
    with pytest.raises(pymysql.err.MySQLError, match="Access denied"):
        run(server, statement_of("b"), "reader")
    assert not shown(server, "a", "reader")


def test_a_wrong_password_is_refused(server: StandIn) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        connection(server, password="wrong")


def test_what_is_no_such_statement_is_refused(server: StandIn) -> None:
    for statement in ("LOAD LABEL a", "SELECT 1", f"{statement_of('a')} x"):
        with pytest.raises(pymysql.err.MySQLError, match="mismatched input"):
            run(server, statement)
    assert not server.broker.jobs


def test_a_statement_may_be_lost_or_late_and_so_may_its_answer(server: StandIn) -> None:
    for fault in (BrokerFault.STATEMENT_LOST, BrokerFault.STATEMENT_LATE, BrokerFault.ANSWER_LOST):
        server.broker.faults.append(fault)
        with pytest.raises(pymysql.err.OperationalError, match="Lost connection"):
            run(server, statement_of(fault.name))
    assert [job.statement.label for job in server.broker.jobs.values()] == ["ANSWER_LOST"]
    server.broker.deliver()
    assert [job.statement.label for job in server.broker.jobs.values()] == ["ANSWER_LOST", "STATEMENT_LATE"]
