"""The precise case of a halt in the status, as a code: from the error in the driver to `status.haltReason`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from exactlyonce.api.conditions import rendered
from exactlyonce.api.status import DriverStatus, Phase, StreamStatus, VerdictStatus
from exactlyonce.launch.last_message import Ending, LastMessage, parse_cut_message, parse_last_message
from exactlyonce_spark.connectors.files.source_planner import FilesGone
from exactlyonce_spark.driver_failure import failed

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RESOURCE = {"metadata": {"generation": 3}}
GONE = "Two files are gone."


def halted(**changes: Any) -> StreamStatus:
    return StreamStatus(phase=Phase.HALTED, message=GONE, attempt=4, **changes)


def told_by(status: StreamStatus) -> Any:
    return rendered(status, RESOURCE, NOW).get("haltReason")


def driver(case: str | None, message: str = GONE) -> DriverStatus:
    return DriverStatus(attempt=4, ended="Refused", case=case, message=message)


def test_an_error_of_a_driver_has_its_name_in_the_last_message_and_in_the_status() -> None:
    words = failed(FilesGone(GONE), None, None, asks_again=False)
    assert (words.ending, words.case) == (Ending.REFUSED, "FilesGone")
    assert parse_last_message(words.render()) == words
    assert told_by(halted(driver=driver(words.case))) == "FilesGone"
    assert told_by(halted(driver=driver(None))) == "Refused", "its last message names none"


def test_an_error_that_came_back_through_spark_has_its_name_too() -> None:
    text = f"Traceback:\nexactlyonce_spark.two_phase_finish.LoadsInDoubt: {GONE}\n"
    assert failed(RuntimeError(text), None, None, asks_again=False).case == "LoadsInDoubt"


def test_the_reason_of_a_verdict_is_that_of_the_halt() -> None:
    verdict = VerdictStatus(kind="Contradiction", reason="LedgerLost", message=GONE, attempt=4, at=NOW)
    assert told_by(halted(verdict=verdict, driver=driver("FilesGone", "another"))) == "LedgerLost"
    replaced = verdict.model_copy(update={"kind": "SourceReplaced", "reason": None})
    assert told_by(halted(verdict=replaced)) == "SourceReplaced"


def test_what_ends_a_pass_of_the_operator_names_itself_and_no_other_phase_has_a_halt_reason() -> None:
    refused = halted(halt_reason="SecretMissing", driver=driver("FilesGone", "another"))
    assert told_by(refused) == "SecretMissing"
    assert told_by(refused.model_copy(update={"phase": Phase.RECONCILING})) is None
    assert told_by(halted()) == "Refused"


@pytest.mark.parametrize("case", ["two words", "a" * 5, "A" * 65, 7, "Ünder"])
def test_what_is_no_code_is_not_taken_from_a_driver(case: Any) -> None:
    text = LastMessage(Ending.REFUSED, GONE, case="FilesGone").render().replace('"FilesGone"', f'"{case}"')
    found = parse_last_message(text)
    assert found is not None
    assert (found.message, found.case) == (GONE, "")


def test_a_message_that_was_cut_keeps_its_case() -> None:
    words = LastMessage(Ending.BATCH_FAILED, GONE, 7, refused_rows=3, too_large=True, case="RowsNotTaken")
    cut = parse_cut_message(words.render()[:-5])
    assert cut is not None
    assert (cut.batch, cut.refused_rows, cut.too_large, cut.case) == (7, 3, True, "RowsNotTaken")
