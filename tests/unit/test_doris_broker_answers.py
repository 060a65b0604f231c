"""What Doris says of broker loads is one of a closed set, or cannot be read."""

from __future__ import annotations

import pytest

from exactlyonce.connectors.doris.answers import Unreadable
from exactlyonce.connectors.doris.broker_answers import (
    Job,
    JobState,
    LoadCancelled,
    Loaded,
    NoJob,
    Runs,
    is_refused_statement,
    is_statement_for_later,
    job_of,
)

LABEL = "exactlyonce:a:0:1:1:0-a"


def row(state: str, etl: str = "\\N", error: str = "\\N", label: str = LABEL) -> dict[str, object]:
    return {"Label": label, "State": state, "EtlInfo": etl, "ErrorMsg": error}


FINISHED = row("FINISHED", "unselected.rows=0; dpp.abnorm.ALL=0; dpp.norm.ALL=27")


@pytest.mark.parametrize("state", [one.value for one in JobState if not one.is_final])
def test_only_finished_and_cancelled_are_final(state: str) -> None:
    assert job_of([row(state)], LABEL) == Runs(JobState(state))


def test_a_finished_load_says_how_many_rows_count() -> None:
    assert job_of([FINISHED], LABEL) == Loaded(27)


def test_no_row_is_no_job() -> None:
    assert job_of([], LABEL) is NoJob.NONE


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row("CANCELLED", error="type:USER_CANCEL; msg:user cancel"), FINISHED], Loaded(27)),
        ([FINISHED, row("CANCELLED", error="type:USER_CANCEL; msg:user cancel")], Loaded(27)),
        ([FINISHED, FINISHED], Loaded(54)),
        ([FINISHED, row("LOADING")], Runs(JobState.LOADING)),
        (
            [
                row("CANCELLED", error="type:TXN_UNKNOWN; msg:x"),
                row("CANCELLED", error="type:USER_CANCEL; msg:user cancel"),
            ],
            NoJob.TRANSACTION_UNKNOWN,
        ),
    ],
)
def test_of_several_jobs_of_a_label_whatever_may_count_is_told(rows: list[dict[str, object]], expected: Job) -> None:
    assert job_of(rows, LABEL) == expected


@pytest.mark.parametrize(
    ("error", "is_refused"),
    [
        ("type:ETL_QUALITY_UNSATISFIED; msg:quality not good enough to cancel", True),
        (
            "type:LOAD_RUN_FAIL; msg:errCode = 2, detailMessage = (10.0.0.1)[DATA_QUALITY_ERROR]too many filtered rows",
            True,
        ),
        ("type:ETL_RUN_FAIL; msg:errCode = 2, detailMessage = Unknown column 'a' in 'orders'", True),
        ("type:ETL_RUN_FAIL; msg:S3 list path exception. path=s3://a/b, err: AccessDenied", True),
        (
            "type:ETL_RUN_FAIL; msg:errCode = 2, detailMessage = No source files found in the specified paths: [s3://a/b]",
            False,
        ),
        ("type:ETL_RUN_FAIL; msg:errCode = 2, detailMessage = No source file in this table(orders).", False),
        ("type:LOAD_RUN_FAIL; msg:errCode = 2, detailMessage = (10.0.0.1)[NOT_FOUND]can not open s3://a/b", False),
        ("type:USER_CANCEL; msg:user cancel", False),
        ("type:TIMEOUT; msg:load timeout to cancel", False),
        ("type:LOAD_RUN_FAIL; msg:errCode = 2, detailMessage = (10.0.0.1)[MEM_LIMIT_EXCEEDED]process memory", False),
        ("type:LOAD_RUN_FAIL; msg:errCode = 2, detailMessage = (10.0.0.1)[E-235]too many versions", False),
        ("", False),
    ],
)
def test_a_cancelled_load_is_submitted_again_unless_the_next_one_would_end_alike(error: str, is_refused: bool) -> None:
    found = job_of([row("CANCELLED", error=error)], LABEL)
    assert isinstance(found, LoadCancelled)
    assert found.is_refused == is_refused
    assert found.reason


@pytest.mark.parametrize(
    "rows",
    [
        [row("FINISHED")],
        [row("FINISHED", "dpp.norm.ALL=many")],
        [row("DONE")],
        [row("FINISHED", "dpp.norm.ALL=27", label="another")],
        [{}],
    ],
)
def test_what_doris_never_says_of_a_job_cannot_be_read(rows: list[dict[str, object]]) -> None:
    with pytest.raises(Unreadable):
        job_of(rows, LABEL)


@pytest.mark.parametrize(
    ("code", "message", "refused"),
    [
        (1045, "Access denied for user 'loader'@'10.0.0.1' (using password: YES)", True),
        (1105, "errCode = 2, detailMessage = Access denied; you need (at least one of) the (LOAD) privilege(s)", True),
        (1105, "errCode = 2, detailMessage = Unknown database 'shop'", True),
        (
            1105,
            "errCode = 2, detailMessage = Table orders has sequence column, need to specify the sequence column",
            True,
        ),
        (1105, "errCode = 2, detailMessage = load_to_single is invalid property", True),
        (1105, "errCode = 2, detailMessage = \nmismatched input 'LABEL'", True),
        (1105, f"errCode = 2, detailMessage = Label [{LABEL}] has already been used.", False),
        (
            1105,
            "errCode = 2, detailMessage = forward to master failed: java.net.SocketTimeoutException: Read timed out",
            False,
        ),
        (1105, "errCode = 2, detailMessage = Node catalog is not ready, please wait for a while.", False),
    ],
)
def test_a_statement_is_taken_for_refused_only_where_no_job_can_be_made_of_it(
    code: int, message: str, refused: bool
) -> None:
    """A frontend that is not the master sends it there, may hear nothing, and answers with an error of its own."""
    assert is_refused_statement(code, message) == refused
    assert not is_statement_for_later(message)


def test_a_statement_is_for_later_where_too_many_loads_wait() -> None:
    message = "errCode = 2, detailMessage = There are more than 100 unfinished load jobs, please retry later."
    assert is_statement_for_later(message)
    assert not is_refused_statement(1105, message)
