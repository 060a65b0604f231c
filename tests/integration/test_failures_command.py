"""`exactlyonce failures` and `dead-letters` over a ledger in Postgres: the bytes that were written, from both versions."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.cli.main import main
from exactlyonce.connectors.postgres.history import letters_query
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.launch import asked_letters
from exactlyonce.ledger.backfills import OF_NO_BATCH, Backfill
from exactlyonce.ledger.history import LetterPlace, RecordedLetter
from exactlyonce.ledger.planned_backfills import plan_backfill
from exactlyonce.ledger.replay import ReplayClaim, claim_ranges, land_pieces, put_back
from exactlyonce.ledger.replay_rules import Piece
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce_spark.connectors.postgres.dead_letters import write_letters
from exactlyonce_spark.target import DeadLetter
from testbed.postgres import Postgres
from tests.conftest import address_of
from tests.ledgers import P0, P1, STREAM, ledger_on, started
from tests.resource_documents import document

AT = "2026-11-20 03:04:05.678+00"
SHARD = Partition("clicks", "shardId-000000000007")
FAR = 49590338271490256608559692538361571095921575989136588898 << 32
BYTES = bytes(range(256))


@pytest.fixture(params=[18, 16])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(f"postgres_{request.param}")
    return found


def run(folder: Path, command: str, *arguments: str) -> Result:
    options = ["--state", str(folder / "state"), "--secrets", str(folder / "secrets")]
    return CliRunner().invoke(main, [command, str(folder / "orders.yaml"), *options, *arguments])


def listed(folder: Path, command: str, *arguments: str) -> list[dict[str, Any]]:
    result = run(folder, command, "-o", "json", *arguments)
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def stream_of(server: Postgres, name: str, folder: Path) -> None:
    """Write a stream of a file whose rows and ledger are in a database, with the login."""
    secret = folder / "secrets" / "warehouse"
    secret.mkdir(parents=True)
    for key, value in address_of(server, name).parameters.items():
        (secret / key).write_text(value)
    changes = {"spec.checkpoint": {"local": {"path": str(folder / "checkpoint")}}, "spec.streamId": STREAM}
    (folder / "orders.yaml").write_text(yaml.safe_dump(document(changes)))


def keep(ledger: PostgresLedger, batch: int, letters: list[DeadLetter], topic_id: str = "id-1") -> None:
    ids = {"orders": topic_id, "clicks": topic_id}
    with ledger.transaction() as transaction, transaction.cursor() as cursor:
        write_letters(cursor, "exactlyonce", STREAM, BatchNumber(batch), letters, ids)


def test_dead_letters_are_listed_shown_and_exported_with_the_bytes_that_the_records_had(
    server: Postgres, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_on(server, name)
    started(ledger)
    stream_of(server, name, tmp_path)
    assert run(tmp_path, "dead-letters").stdout == "shop/orders has no dead letters.\n"
    keep(ledger, 1, [DeadLetter(P0, 340, AT, b"k", BYTES, "no number"), DeadLetter(P1, 7, None, None, None, "empty")])
    keep(ledger, 2, [DeadLetter(SHARD, FAR, AT, None, b"{}", "no id", '{"sequenceNumber": "1"}')])
    keep(ledger, 9, [DeadLetter(P0, 340, AT, None, b"later", "no number")], topic_id="id-2")
    monkeypatch.setattr(asked_letters, "_PAGE", 1)
    monkeypatch.delenv("COLUMNS", raising=False)

    found = listed(tmp_path, "dead-letters")
    assert [(row["id"], row["topicId"], row["batch"]) for row in found] == [
        (f"clicks-shardId-000000000007/{FAR}", "id-1", 2),
        ("orders-0/340", "id-1", 1),
        ("orders-1/7", "id-1", 1),
        ("orders-0/340", "id-2", 9),
    ]
    assert listed(tmp_path, "dead-letters", "--id", "orders-0/340") == [found[1], found[3]]
    first = found[1]
    assert (base64.b64decode(first["key"]), base64.b64decode(first["value"])) == (b"k", BYTES)
    assert (first["timestamp"], first["error"]) == ("2026-11-20T03:04:05.678000+00:00", "no number")
    assert (first["place"], found[0]["place"]) == (None, {"sequenceNumber": "1"})
    assert [found[2][key] for key in ("timestamp", "key", "value")] == [None, None, None]
    shown = run(tmp_path, "dead-letters", "--id", "orders-0/340").stdout
    assert "00000040  40 41 42" in shown
    assert "\x1b" not in shown

    exported = tmp_path / "letters.jsonl"
    said = run(tmp_path, "dead-letters", "--export", str(exported))
    assert said.stdout == f"Exported 4 dead letters of shop/orders to {exported}.\n"
    assert [json.loads(line) for line in exported.read_text().splitlines()] == found
    beside = tmp_path / "letters.jsonl.partial"
    beside.write_text("of somebody else")
    again = run(tmp_path, "dead-letters", "--export", str(exported))
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr == f"{exported} is there already, and nothing was exported; name a new file.\n"
    other = tmp_path / "other.jsonl"
    (tmp_path / "other.jsonl.partial").write_text("of somebody else")
    told = run(tmp_path, "dead-letters", "--export", str(other), "-o", "json").stdout
    assert json.loads(told) == {"stream": STREAM, "file": str(other), "exported": 4}
    assert other.read_text() == exported.read_text()
    partial = [tmp_path / f"{name}.jsonl.partial" for name in ("letters", "other")]
    assert [path.read_text() for path in partial] == ["of somebody else"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("letters.jsonl", "letters.jsonl.partial", "orders.yaml", "other.jsonl", "other.jsonl.partial", "secrets")
    ]
    heading, *lines = run(tmp_path, "dead-letters").stdout.splitlines()
    assert (heading.split()[-2:], len(lines)) == (["bytes", "error"], 4)
    sizes = [line.rstrip().removesuffix(row["error"]).split()[-1] for line, row in zip(lines, found, strict=True)]
    assert sizes == ["2", "256", "-", "5"]

    fewer = run(tmp_path, "dead-letters", "--limit", "3", "-o", "json")
    assert json.loads(fewer.stdout) == found[:3]
    assert fewer.stderr == "These are the first 3; --limit shows more, --export all of them.\n"


def test_pages_of_large_dead_letters_are_bounded_in_bytes_and_a_list_reads_no_value(
    server: Postgres, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_on(server, name)
    started(ledger)
    stream_of(server, name, tmp_path)
    keep(ledger, 1, [DeadLetter(P0, offset, AT, None, b"x" * 1000, "no number") for offset in range(7)])
    pages = []
    kept = PostgresLedger.kept_letters

    def observed(*arguments: Any) -> tuple[RecordedLetter, ...]:
        page = kept(*arguments)
        pages.append([(letter.row.position, len(letter.value or b""), letter.value_bytes) for letter in page])
        return page

    monkeypatch.setattr(PostgresLedger, "kept_letters", observed)
    monkeypatch.setattr(asked_letters, "_PAGE_BYTES", 2500)
    assert [row["position"] for row in listed(tmp_path, "dead-letters")] == [*range(7)]
    whole = [(offset, 1000, 1000) for offset in range(7)]
    assert pages == [whole[:3], whole[3:6], whole[6:], []]
    pages.clear()
    assert len(listed(tmp_path, "dead-letters", "--limit", "1")) == 1
    assert pages == [whole[:2]], "of which the second only says that there are more"
    pages.clear()
    run(tmp_path, "dead-letters")
    assert pages == [[(offset, 0, 1000) for offset in range(7)], []]
    pages.clear()
    monkeypatch.setattr(asked_letters, "_PAGE_BYTES", 10)
    assert [row["position"] for row in listed(tmp_path, "dead-letters")] == [*range(7)], "a letter beyond the bound"
    assert max(map(len, pages)) == 1


def test_a_dead_letter_is_found_by_its_id_through_an_index(postgres_18: Postgres, name: str) -> None:
    ledger = ledger_on(postgres_18, name)
    started(ledger)
    keep(ledger, 1, [DeadLetter(P0, offset, AT, None, b"x", "no number") for offset in range(3000)])
    keep(ledger, 2, [DeadLetter(SHARD, FAR + offset, AT, None, b"x", "no number") for offset in range(2000)])
    for partition, position in ((P0, 1900), (SHARD, FAR + 1900)):
        statement, values = letters_query(STREAM, LetterPlace.of(str(partition), position), None, 500, 1000)
        with ledger.transaction() as transaction, transaction.cursor() as cursor:
            cursor.execute("analyze exactlyonce.dead_letters")
            cursor.execute("set local enable_seqscan = off")  # which is cheaper for so few
            cursor.execute(f"explain (analyze, format json) {ledger.named(statement)}", values)
            ((plan,),) = cursor.fetchall()
        read = sum(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in scans(plan[0]["Plan"]))
        assert read == 1


def scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    below = [node for part in plan.get("Plans", []) for node in scans(part)]
    return [*below, *([plan] if plan["Node Type"].endswith("Scan") and "Relation Name" in plan else [])]


@pytest.mark.parametrize(
    ("identifier", "sentence"),
    [
        ("orders-0/341", "shop/orders has no dead letter orders-0/341; `exactlyonce dead-letters` lists its own."),
        ("orders-0", "orders-0 is not the id of a dead letter, which has the form PARTITION/POSITION, such as"),
    ],
)
def test_a_dead_letter_that_is_not_there_is_one_sentence(
    postgres_18: Postgres, name: str, tmp_path: Path, identifier: str, sentence: str
) -> None:
    started(ledger_on(postgres_18, name))
    stream_of(postgres_18, name, tmp_path)
    result = run(tmp_path, "dead-letters", "--id", identifier)
    assert (result.exit_code, result.stdout) == (1, "")
    (said,) = result.stderr.splitlines()
    assert said.startswith(sentence)


def test_failures_of_a_ledger_in_postgres_are_those_that_were_written(
    server: Postgres, name: str, tmp_path: Path
) -> None:
    ledger = ledger_on(server, name)
    started(ledger)
    stream_of(server, name, tmp_path)
    rows = (
        FailureRow(BatchNumber(2), P0, 5, 9, FailureStatus.QUARANTINED, "broker:9092", "it fails", origin_id="id-1"),
        FailureRow(BatchNumber(3), SHARD, FAR, FAR + 5, FailureStatus.OPEN, "kinesis", "it fails, too"),
        FailureRow(BatchNumber(1), P1, 0, 5, FailureStatus.CLOSED, "broker:9092", "it failed"),
    )
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, rows)
    found = listed(tmp_path, "failures")
    assert [(row["id"], row["from"], row["until"], row["status"], row["originId"]) for row in found] == [
        ("2/orders-0/5", 5, 9, "Quarantined", "id-1"),
        (f"3/clicks-shardId-000000000007/{FAR}", FAR, FAR + 5, "Open", None),
    ]
    assert [row["id"] for row in listed(tmp_path, "failures", "--all", "--limit", "1")] == ["1/orders-1/0"]
    assert run(tmp_path, "failures", "--id", "1/orders-1/0").stdout.startswith("id        1/orders-1/0\n")


def test_a_database_that_no_stream_was_run_against_has_neither(
    postgres_18: Postgres, name: str, tmp_path: Path
) -> None:
    postgres_18.create_database(name)
    stream_of(postgres_18, name, tmp_path)
    assert (listed(tmp_path, "failures"), listed(tmp_path, "dead-letters")) == ([], [])


def test_backfills_are_listed_with_what_has_landed_and_what_is_left(
    server: Postgres, name: str, tmp_path: Path
) -> None:
    ledger = ledger_on(server, name)
    stream_of(server, name, tmp_path)
    started(ledger)
    assert run(tmp_path, "backfills").stdout == "shop/orders has no backfills.\n"
    asked = FailureRow(OF_NO_BATCH, P0, 0, 20, FailureStatus.QUARANTINED, "brokers", "", origin_id="id-1")
    plan_backfill(ledger, STREAM, Backfill("high", "table high", "asked", (asked,)), "table orders")
    plan_backfill(
        ledger, STREAM, Backfill("low", "table low", "asked", (replace(asked, until_offset=5),)), "table orders"
    )
    for backfill, until in (("high", 8), ("low", 5)):
        claim = ReplayClaim(STREAM, "mine", f"table {backfill}", backfill, "table orders")
        (part,) = claim_ranges(ledger, claim, ()).rows
        land_pieces(ledger, claim, [Piece(part, until)], lambda _: 1)
    found = listed(tmp_path, "backfills")
    told = ("name", "into", "status", "parts", "landed", "left", "lost")
    assert [tuple(it[key] for key in told) for it in found] == [
        ("high", "table high", "Replaying", 2, 8, 12, 0),
        ("low", "table low", "Done", 1, 5, 0, 0),
    ]
    (one,) = listed(tmp_path, "backfills", "--backfill", "high")
    assert [(it["from"], it["until"], it["status"]) for it in one["ranges"]] == [
        (0, 8, "Replayed"),
        (8, 20, "Replaying"),
    ]
    put_back(ledger, replace(claim, backfill="high", sink="table high"), Piece(part_of(ledger), 20))
    assert [it["status"] for it in listed(tmp_path, "backfills")] == ["Unfinished", "Done"]
    unknown = run(tmp_path, "backfills", "--backfill", "january")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "has no backfill january" in unknown.stderr
    lines = run(tmp_path, "backfills").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["high", "table"], ["low", "table"]]


def part_of(ledger: PostgresLedger) -> FailureRow:
    """Return the part of the backfill high that a replay has taken."""
    (kept,) = (it for it in ledger.kept_backfills(STREAM) if it.backfill.name == "high")
    return next(part for part in kept.backfill.parts if part.status is FailureStatus.REPLAYING)
