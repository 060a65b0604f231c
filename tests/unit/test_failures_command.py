"""`exactlyonce failures` and `dead-letters` without a server: over a ledger that is a log of objects on a disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.cli import cluster_offsets
from exactlyonce.cli.dead_letters import dump
from exactlyonce.cli.local_stream import choose_stream, open_stream
from exactlyonce.cli.main import main
from exactlyonce.ledger.connector import OpenLedger
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Partition
from tests.ledgers import P0, P1, STREAM, started
from tests.resource_documents import document

LONG = "division by zero in [red]a column[/red]\x1b[2J\a " + "and so forth " * 20


def row(batch: int, partition: Partition, start: int, end: int, status: FailureStatus, error: str = LONG) -> FailureRow:
    return FailureRow(BatchNumber(batch), partition, start, end, status, "kafka:9092", error, origin_id="id-1")


ROWS = (
    row(12, P0, 340, 350, FailureStatus.QUARANTINED),
    row(12, P1, 0, 5, FailureStatus.LOST),
    row(3, P0, 300, 340, FailureStatus.CLOSED),
    row(14, P1, 5, 9, FailureStatus.OPEN),
    row(2, P0, 200, 300, FailureStatus.SUPERSEDED),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A stream of a file that writes files, with a range of each kind."""
    changes = {
        "spec.sink": {"files": {"path": str(tmp_path / "lake")}},
        "spec.checkpoint": {"local": {"path": str(tmp_path / "checkpoint")}},
        "spec.streamId": STREAM,
    }
    written = tmp_path / "orders.yaml"
    written.write_text(yaml.safe_dump(document(changes)))
    return written


def ledger_of(file: Path) -> OpenLedger:
    return open_stream(choose_stream(file, None), file.parent / "state", file.parent).ledger


@pytest.fixture
def failed(file: Path) -> Path:
    ledger = ledger_of(file)
    ledger.prepare()
    started(ledger)
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, ROWS)
    return file


def run(file: Path, command: str, *arguments: str, columns: int = 200) -> Result:
    options = ["--state", str(file.parent / "state"), "--secrets", str(file.parent)]
    command_line = [*command.split(), str(file), *options, *arguments]
    return CliRunner().invoke(main, command_line, env={"COLUMNS": str(columns)})


def ids(file: Path, *arguments: str) -> list[str]:
    result = run(file, "failures", "-o", "json", *arguments)
    assert result.exit_code == 0, result.stderr
    return [row["id"] for row in json.loads(result.stdout)]


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_has_no_effect_is_listed_earliest_first_and_nothing_is_changed(failed: Path) -> None:
    before = everything(failed.parent)
    assert ids(failed) == ["12/orders-0/340", "12/orders-1/0", "14/orders-1/5"]
    assert ids(failed, "--all") == ["2/orders-0/200", "3/orders-0/300", *ids(failed)]
    assert ids(failed, "--status", "closed", "--status", "Open") == ["3/orders-0/300", "14/orders-1/5"]
    assert everything(failed.parent) == before


def test_a_range_is_told_with_everything_that_is_known_of_it(failed: Path) -> None:
    result = run(failed, "failures", "--id", "12/orders-0/340", "-o", "json")
    told = json.loads(result.stdout)
    assert told.pop("since").endswith("+00:00")
    assert told == {
        "id": "12/orders-0/340",
        "batch": 12,
        "topic": "orders",
        "partition": 0,
        "from": 340,
        "until": 350,
        "status": "Quarantined",
        "error": LONG,
        "brokers": "kafka:9092",
        "originId": "id-1",
        "replay": None,
        "decided": False,
    }
    shown = run(failed, "failures", "--id", "12/orders-0/340").stdout
    assert "Quarantined" in shown
    assert LONG.partition("\a")[2].strip() in shown, "the whole error"


def test_an_error_is_shown_whole_however_long_it_is(failed: Path) -> None:
    ledger = ledger_of(failed)
    with ledger.transaction() as transaction:
        transaction.write_failures(
            STREAM, (row(20, P0, 400, 401, FailureStatus.OPEN, "and so forth " * 1000 + "the cause"),)
        )
    shown = run(failed, "failures", "--id", "20/orders-0/400").stdout
    assert "and so forth and so forth the cause\n" in shown


def test_a_table_that_is_piped_is_not_cut_to_the_width_of_a_screen(failed: Path) -> None:
    options = ["--state", str(failed.parent / "state"), "--secrets", str(failed.parent)]
    result = CliRunner().invoke(main, ["failures", str(failed), *options], env={"COLUMNS": None})
    heading, first, *_ = result.stdout.splitlines()
    assert heading.split()[-1] == "error"
    assert LONG.partition("\a")[0].partition("\x1b")[0] in first
    assert len(result.stdout.splitlines()) == 4, "a line for each range"


@pytest.mark.parametrize("arguments", [(), ("--id", "12/orders-0/340")])
def test_what_an_error_says_is_text_and_does_nothing_to_a_terminal(failed: Path, arguments: tuple[str, ...]) -> None:
    shown = run(failed, "failures", *arguments).stdout
    assert "[red]a column[/red]" in " ".join(shown.split())
    assert not {"\x1b", "\a"} & {*shown}


def test_more_than_the_limit_is_said_to_be_there(failed: Path) -> None:
    result = run(failed, "failures", "-o", "json", "--limit", "1")
    assert [row["id"] for row in json.loads(result.stdout)] == ["12/orders-0/340"]
    assert result.stderr == "These are the first 1; --limit shows more.\n"
    assert run(failed, "failures", "--limit", "3").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--id", "13/orders-0/340"),
            "shop/orders has no failed range 13/orders-0/340; `exactlyonce failures --all` lists",
        ),
        (("--id", "12/orders-0/341"), "shop/orders has no failed range 12/orders-0/341;"),
        (("--id", "all"), "all is not the id of a failed range, which has the form BATCH/PARTITION/POSITION"),
        (
            ("--id", "3/orders-0/300", "--status", "Quarantined"),
            "3/orders-0/300 of shop/orders is Closed, not Quarantined.",
        ),
    ],
)
def test_a_range_that_is_not_there_or_not_quarantined_is_one_sentence(
    failed: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    result = run(failed, "failures", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    (said,) = result.stderr.splitlines()
    assert said.startswith(sentence)


def test_a_stream_that_never_ran_has_no_failures_and_is_left_as_it_is(file: Path) -> None:
    before = everything(file.parent)
    result = run(file, "failures", "--status", "Quarantined")
    assert (result.exit_code, result.stdout) == (0, "No range of shop/orders is Quarantined.\n")
    assert ids(file) == []
    assert everything(file.parent) == before


def test_all_and_a_status_are_an_error_of_use(file: Path) -> None:
    assert run(file, "failures", "--all", "--status", "Open").exit_code == 2


@pytest.mark.parametrize("arguments", [(), ("--id", "orders-0/3"), ("--export", "letters.jsonl"), ("-o", "json")])
def test_a_sink_without_dead_letters_is_one_sentence(file: Path, arguments: tuple[str, ...]) -> None:
    result = run(file, "dead-letters", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "shop/orders writes to spec.sink.files, which keeps no dead letters: a malformed record fails its batch there, and "
        "`exactlyonce failures` shows it.\n"
    )


def test_bytes_are_shown_so_that_nothing_of_them_acts_on_a_terminal() -> None:
    assert list(dump(b"\x1b[2J, \xff id")) == ["00000000  1b 5b 32 4a 2c 20 ff 20 69 64                    .[2J, . id"]
    *_, last = dump(b"x" * 5000)
    assert last == "… and 904 bytes more; -o json and --export have them all"


class FakeCluster:
    """A cluster with the stream of a file, without a secret."""

    def __init__(self, file: Path) -> None:
        self.document: dict[str, Any] = yaml.safe_load(file.read_text())

    def stream(self, namespace: str, name: str) -> dict[str, Any]:
        assert (namespace, name) == ("shop", "orders")
        return self.document


def test_a_stream_of_a_cluster_is_asked_through_its_own_ledger(failed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = ledger_of(failed)
    monkeypatch.setattr("exactlyonce.cli.asked_ledger.cluster_of", lambda options: (FakeCluster(failed), "shop"))
    monkeypatch.setattr(cluster_offsets, "cluster_ledger", lambda cluster, stream: opened)
    result = CliRunner().invoke(main, ["failures", "orders", "-n", "shop", "-o", "json"])
    assert [row["id"] for row in json.loads(result.stdout)] == ["12/orders-0/340", "12/orders-1/0", "14/orders-1/5"]
