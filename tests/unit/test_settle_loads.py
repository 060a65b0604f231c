"""`exactlyonce settle-loads`: what it lists, what it writes, and for which labels it writes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.cli.local_stream import choose_stream, open_stream
from exactlyonce.cli.main import main
from exactlyonce.cli.reset_subject import login_name
from exactlyonce.ledger.decided import Answer, Committable, DecidedBatch
from exactlyonce.ledger.known_loads import FoundLoad
from exactlyonce.ledger.two_phase import record_found
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce.reconcile.decided import answers_in
from tests.ledgers import P0, P1, STREAM, started
from tests.resource_documents import DORIS, document

A, B = "exactlyonce:shop_orders:0:1:7:0-a", "s3a_bucket_orders_7_1#72"
DECIDED = DecidedBatch(
    BatchNumber(7),
    (
        Committable(A, "71", 5, Ranges({P0: OffsetRange(0, 5)})),
        Committable(B.partition("#")[0], "72", 3, Ranges({P1: OffsetRange(0, 3)}), shares_label=True),
    ),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A stream of a file, whose ledger has decided a batch."""
    changes = {"spec.sink": {"doris": DORIS}, "spec.checkpoint": {"local": {"path": str(tmp_path / "checkpoint")}}}
    made = document({**changes, "metadata.annotations": {"of": "another", SETTLE_LOADS: "left=Aborted"}})
    made["spec"]["streamId"] = STREAM
    written = tmp_path / "orders.yaml"
    written.write_text(yaml.safe_dump(made))
    return written


def of_file(file: Path, *arguments: str) -> Result:
    state = ["--state", str(file.parent / "state"), "--secrets", str(file.parent)]
    return CliRunner().invoke(main, ["settle-loads", str(file), *state, *arguments])


def test_answers_for_a_stream_of_a_file_are_kept_beside_its_status_and_the_next_run_has_them(file: Path) -> None:
    state = file.parent / "state"
    opened = open_stream(choose_stream(file, None), state, file.parent)
    opened.ledger.prepare()
    permit = started(opened.ledger)
    assert "has no batch that is decided" in of_file(file, "--committed", A).stderr
    with opened.ledger.transaction() as transaction:
        transaction.write_decided(permit.stream_id, DECIDED)
    listed = of_file(file)
    assert f"{A}  5 rows of" in listed.stdout, listed.output
    assert of_file(file, "--committed", A, "--dry-run").exit_code == 0
    assert not opened.answers.file.exists()
    assert of_file(file, "--committed", A, "--aborted", B).exit_code == 0
    assert of_file(file, "--aborted", "other").exit_code == 1
    again = open_stream(choose_stream(file, None), state, file.parent)
    asked_for = again.stream.metadata.annotations[SETTLE_LOADS]
    assert asked_for == f"left=Aborted {A}=Committed {B}=Aborted"
    assert again.stream.metadata.annotations["of"] == "another"


def test_a_load_that_the_ledger_does_not_know_is_listed_and_answered_for_by_whoever_asks(file: Path) -> None:
    opened = open_stream(choose_stream(file, None), file.parent / "state", file.parent)
    opened.ledger.prepare()
    permit = started(opened.ledger)
    record_found(opened.ledger, permit, FoundLoad(A, BatchNumber(7), 5, ((P0, OffsetRange(0, 5)),)))
    listed = of_file(file)
    assert "has committed batch 7, and the ledger does not know it" in listed.stdout
    assert f"{A}  5 rows of orders-0 [0, 5), which the ledger does not know" in listed.stdout
    assert of_file(file, "--committed", B).exit_code == 1
    told = of_file(file, "--committed", A)
    assert f"{A}: Committed; its records count as landed" in told.stdout
    assert opened.answers.read() == f"{A}=Committed by={login_name()}"
    assert f"{A}: Aborted; its records are read again" in of_file(file, "--aborted", A).stdout
    assert answers_in(opened.answers.read() or "") == {A: Answer.ABORTED}


def test_answers_that_cannot_be_kept_are_told(file: Path) -> None:
    opened = open_stream(choose_stream(file, None), file.parent / "state", file.parent)
    (file.parent / "state").write_text("a file in the place of the folder")
    with pytest.raises(Exception, match=r"settle-loads cannot be written"):
        replace(opened.answers).write("a=Aborted")


def test_answers_that_cannot_be_read_are_told_in_one_sentence(file: Path) -> None:
    kept = open_stream(choose_stream(file, None), file.parent / "state", file.parent).answers.file
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(b"\xff\xfe")
    result = of_file(file)
    assert result.exit_code == 1
    assert f"The answers for loads in {kept} cannot be read" in result.stderr
    assert "delete the file, and answer again with `exactlyonce settle-loads`" in result.stderr


def test_a_state_folder_that_is_none_holds_no_answers_and_is_refused_as_such_by_what_uses_it(file: Path) -> None:
    opened = open_stream(choose_stream(file, None), file, file.parent)  # --state names a file
    assert opened.answers.read() is None
