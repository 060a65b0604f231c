"""`exactlyonce replay` before anything runs: which streams it refuses, what it takes, and how documents go to and fro."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.api.replay import why_not_replayable
from exactlyonce.api.resource import parse_stream
from exactlyonce.cli.main import main
from exactlyonce.cli.replay import TransformUnreadable, with_transform
from exactlyonce.launch.replay_document import ReplayDocument, ReplayReport
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce_spark.replay_driver import Throttle
from tests.resource_documents import document

KEYED = {"spec.sink.postgres.write": "Upsert", "spec.sink.postgres.keys": ["id"]}

DELETES = {
    "spec.source.format.onTombstone": "Delete",
    "spec.transform": {"sql": "select cast(_key as bigint) id from source"},
}


def refusal(**changes: Any) -> str | None:
    return why_not_replayable(parse_stream(document(changes), "the test").spec)


def test_rows_that_are_appended_or_have_a_version_or_are_summed_up_can_be_replayed() -> None:
    assert refusal() is None
    assert refusal(**KEYED, **{"spec.sink.postgres.version": "ts"}) is None
    assert refusal(**merged("Sum")) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (KEYED, "write: Upsert has no version"),
        ({**KEYED, **DELETES}, "onTombstone: Delete"),
        ({**KEYED, "spec.outputMode": "Update"}, "outputMode: Update"),
        ({"spec.sink": {"files": {"path": "/lake"}}}, "not into files"),
    ],
)
def test_what_a_replay_could_make_wrong_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    assert words in (refusal(**changes) or "")


@pytest.mark.parametrize("combine", ["First", "Last"])
def test_a_merge_by_order_is_refused_with_its_column(combine: str) -> None:
    assert "of amount" in (refusal(**merged(combine)) or "")


def test_a_refused_stream_is_told_before_a_store_is_asked(tmp_path: Path) -> None:
    result = run(tmp_path, KEYED, "--yes")
    assert result.exit_code == 1
    assert result.stderr == (
        "Nothing of shop/orders can be replayed: write: Upsert has no version, so that older values would replace newer ones; "
        "name a version column.\n"
    )


def test_yes_and_dry_run_contradict_each_other(tmp_path: Path) -> None:
    result = run(tmp_path, {}, "--yes", "--dry-run")
    assert result.exit_code == 2
    assert "--yes and --dry-run cannot be combined" in result.stderr


def test_a_transform_of_a_file_takes_the_place_of_the_streams_own(tmp_path: Path) -> None:
    stream = parse_stream(document({"spec.transform": {"python": {"module": "mine"}}}), "the test")
    file = tmp_path / "mended.sql"
    with pytest.raises(TransformUnreadable, match=r"mended\.sql cannot be read"):
        with_transform(stream, file)
    file.write_text("  \n")
    with pytest.raises(TransformUnreadable, match="is empty"):
        with_transform(stream, file)
    file.write_text("select id from source")
    transform = with_transform(stream, file).spec.transform
    assert transform is not None
    assert (transform.sql, transform.python) == ("select id from source", None)
    assert with_transform(stream, None) is stream


def test_document_and_report_are_read_as_they_were_written() -> None:
    keys = (
        RangeKey(BatchNumber(3), Partition("orders", 1), 7),
        RangeKey(BatchNumber(4), Partition("clicks", "shard"), 1 << 80),
    )
    given = ReplayDocument("shop/orders", {"a": 1}, "local[2]", keys, {"spark.x": "y"}, 50, 2.5)
    assert ReplayDocument.parse(given.render()) == given
    report = ReplayReport(5, 4, 3, 2, ("one sentence",), "another")
    assert ReplayReport.parse(report.render()) == report


def test_a_limit_waits_for_what_the_records_are_worth_and_saves_up_nothing() -> None:
    clock, waits = [100.0], list[float]()

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        clock[0] += seconds
        return False

    throttle = Throttle(10, wait, lambda: clock[0])
    throttle.landed(50)
    clock[0] += 3
    throttle.landed(50)
    clock[0] += 60
    throttle.landed(50)
    throttle.landed(50)
    assert waits == [5.0, 2.0, 5.0]
    Throttle(None, wait).landed(1_000_000)
    assert len(waits) == 3


def merged(combine: str) -> dict[str, Any]:
    return {
        "spec.sink.postgres.write": "Merge",
        "spec.sink.postgres.keys": ["id"],
        "spec.sink.postgres.merge": [{"column": "amount", "combine": combine}],
    }


def run(folder: Path, changes: dict[str, Any], *arguments: str) -> Result:
    file = folder / "orders.yaml"
    file.write_text(yaml.safe_dump(document(changes)))
    return CliRunner().invoke(main, ["replay", str(file), "--state", str(folder), *arguments])
