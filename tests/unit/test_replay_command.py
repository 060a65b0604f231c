"""`exactlyonce replay` before anything runs: which streams it refuses, what it takes, and how documents go to and fro."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.api.replay import why_not_replayable
from exactlyonce.api.resource import parse_stream
from exactlyonce.cli.local_replay import tell
from exactlyonce.cli.main import main
from exactlyonce.cli.replay_candidates import examined, show_ranges
from exactlyonce.cli.replayed_transform import TransformUnreadable, with_transform
from exactlyonce.errors import OriginMissing
from exactlyonce.launch.replay_document import ReplayDocument, ReplayReport
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Partition, Positions
from exactlyonce.reconcile.replay_choice import Shown
from exactlyonce.source.port import SourceNow
from exactlyonce_spark.replay_driver import Throttle
from tests.resource_documents import KAFKA_SINK, document

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
    assert refusal(**{"spec.sink": {"files": {"path": "/lake"}}}) is None, "files have no order"
    assert refusal(**{"spec.sink": {"kafka": KAFKA_SINK}}) is None, "whether the topic is compacted, the replay asks"
    assert refusal(**{"spec.sink": {"delta": {"location": "/lake"}}}) is None, "nor have the rows of a table"
    catalog = {"sql": {"secretRef": {"name": "catalog"}}}
    assert refusal(**{"spec.sink": {"iceberg": {"catalog": catalog, "table": "a.b", "location": "/lake"}}}) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (KEYED, "write: Upsert has no version"),
        ({**KEYED, **DELETES}, "onTombstone: Delete"),
        ({**KEYED, "spec.outputMode": "Update"}, "outputMode: Update"),
    ],
)
def test_what_a_replay_could_make_wrong_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    assert words in (refusal(**changes) or "")


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ({"delta": {"location": "/lake"}}, "Readers of the table see these rows with the next batch that lands.\n"),
        ({"files": {"path": "/lake", "manifest": "None"}}, ""),
        ({"files": {"path": "/lake"}}, "readers of _spark_metadata see them with the next batch that lands.\n"),
    ],
)
def test_who_replays_is_told_which_readers_do_not_see_it_yet(
    capsys: pytest.CaptureFixture[str], sink: dict[str, Any], words: str
) -> None:
    spec = parse_stream(document({"spec.sink": sink}), "the test").spec
    tell(ReplayReport(landed=3, rows=3), spec.sink.spec)
    said, _, shown = capsys.readouterr().out.partition("\n")
    assert said.startswith("Landed 3 records (3 rows)")
    assert shown.endswith(words)
    assert bool(shown) is bool(words)


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


@dataclass
class Topics:
    """A source that counts how often it is asked; `gone` are origins that it has not."""

    gone: frozenset[str] = frozenset()
    asked: int = 0

    def now(self, partitions: list[Partition]) -> SourceNow:
        self.asked += 1
        missing = [key.origin for key in partitions if key.origin in self.gone]
        if missing:
            raise OriginMissing(f"The topic {missing[0]} does not exist.")
        ids = {key.origin: "id-2" if key.origin == "other" else "id-1" for key in partitions}
        return SourceNow(Positions(dict.fromkeys(partitions, 14)), ids, {})


@dataclass
class Opened:
    """As much of a stream of a file as is asked for what its ledger says."""

    stream: Any
    ledger: Any


def test_what_the_source_says_of_many_ranges_is_asked_once_for_each_partition_and_told_of_each_range() -> None:
    life = SimpleNamespace(stream=SimpleNamespace(life="life-1"))
    opened = Opened(SimpleNamespace(stream_id="shop/orders"), SimpleNamespace(view=lambda _: life))
    found = [
        *(kept_range("orders", number, 10, 20) for number in range(4)),
        kept_range("orders", 0, 20, 30),
        kept_range("other", 0, 10, 20),
        kept_range("deleted", 0, 10, 20),
        kept_range("orders", 9, 10, 20, life="life-0"),
    ]
    source = Topics()
    told = examined(opened, source, found)  # type: ignore[arg-type] # as much of both as is asked
    assert source.asked == 2
    assert [it.kept for it in told] == found, "in the order given"
    assert [it.lost for it in told] == [4, 4, 4, 4, 0, 0, 4, 0]
    assert [it.refusal is None for it in told] == [True] * 5 + [False, True, False]
    assert "id-2" in (told[5].refusal or "")
    assert "started over" in (told[7].refusal or "")

    told = examined(opened, Topics(frozenset({"deleted"})), found)  # type: ignore[arg-type] # as above
    assert told[6].refusal == "The topic deleted does not exist."
    assert [it.refusal is None for it in told[:5]] == [True] * 5, (
        "what another topic is missing for says nothing of these"
    )


def test_of_a_range_that_is_decided_the_source_is_not_asked_and_a_replay_of_it_is_started_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only a replay, or a driver, asks the sink; a topic that is gone must not keep it from that."""
    life = SimpleNamespace(stream=SimpleNamespace(life="life-1"))
    opened = Opened(SimpleNamespace(stream_id="shop/orders"), SimpleNamespace(view=lambda _: life))
    decided, taken = kept_range("deleted", 0, 10, 20), kept_range("orders", 0, 10, 20)
    found = [
        replace(decided, row=replace(decided.row, status=FailureStatus.REPLAYING, replay="mine decided")),
        replace(taken, row=replace(taken.row, status=FailureStatus.REPLAYING, replay="mine")),
    ]
    told = examined(opened, Topics(frozenset({"deleted"})), found)  # type: ignore[arg-type] # as above
    assert [(it.refusal, it.lost) for it in told] == [(None, 0), (None, 4)]
    show_ranges(parse_stream(document(), "the test"), told)
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 of them were taken by another replay" in shown
    assert "1 of them were decided by another replay, and the sink is asked first about these" in shown
    in_status = Shown(found[0], None)
    assert (in_status.can_be_replayed, "decided by a replay" in in_status.rendered().found) == (True, True)


def kept_range(origin: str, number: int, start: int, until: int, life: str = "life-1") -> RecordedFailure:
    row = FailureRow(
        BatchNumber(3),
        Partition(origin, number),
        start,
        until,
        FailureStatus.QUARANTINED,
        "broker",
        "it failed",
        origin_id="id-1",
        life=life,
    )
    return RecordedFailure(row, datetime(2026, 11, 25, tzinfo=UTC))


def test_document_and_report_are_read_as_they_were_written() -> None:
    keys = (
        RangeKey(BatchNumber(3), Partition("orders", 1), 7),
        RangeKey(BatchNumber(4), Partition("clicks", "shard"), 1 << 80),
    )
    given = ReplayDocument("shop/orders", {"a": 1}, "local[2]", keys, {"spark.x": "y"}, 50, 2.5)
    assert ReplayDocument.parse(given.render()) == given
    assert given.most_at_once == 25, "ten seconds of the limit at once, so that the stream's own reads are not held up"
    assert replace(given, records_per_second=0.01).most_at_once == 1
    assert replace(given, records_per_second=None).most_at_once == 50
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


@pytest.mark.parametrize(
    "arguments",
    [
        ("--from", "ranges"),
        ("--ranges", '{"orders":{"0":[1,2]}}'),
        ("--from", "ranges", "--ranges", "{}", "--by-timestamp", "2026-01-01", "2026-01-02"),
        ("--from", "dead-letters", "--by-timestamp", "2026-01-01", "2026-01-02"),
    ],
)
def test_ranges_are_given_in_one_way_and_only_where_ranges_are_asked_for(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    result = run(tmp_path, {}, *arguments)
    assert result.exit_code == 2
    assert "needs exactly one of --ranges and --by-timestamp" in result.stderr
