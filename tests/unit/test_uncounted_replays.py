"""Replays of sources whose positions count no records: what is refused, and how they are counted where nobody can."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from exactlyonce.api.replay import Replayed, why_not_replayable
from exactlyonce.api.resource import parse_stream
from exactlyonce.api.stream_replay import FailedRanges, parse_replay
from exactlyonce.api.stream_replay_status import ReplayPhase, ReplayStatus
from exactlyonce.cli.local_replay import tell
from exactlyonce.connectors.files.source_position import SourceFile, after
from exactlyonce.launch.asked_ranges import MOST_RANGES, AskedRange, parse_asked, render_asked, tally
from exactlyonce.launch.driver_document import Image
from exactlyonce.launch.pod_settings import PodDefaults
from exactlyonce.launch.replay_document import ReplayReport
from exactlyonce.launch.replay_pod import ReplayOrders, replay_manifests
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition
from exactlyonce.reconcile.replay_choice import chosen
from exactlyonce.reconcile.stream_replay import MOST_ENDINGS, AttemptEnd, finished, outcome, recorded
from exactlyonce.reconcile.stream_replay import after as after_attempt
from tests.resource_documents import document
from tests.unit.replay_documents import replay

FOLDER = Partition("/lake/incoming", 0)
ENDS = [after(0, [SourceFile(f"{each}.json", 1, 1) for each in range(count)]) for count in range(4)]
NOW = datetime(2026, 11, 26, tzinfo=UTC)
ON_A_CLAIM = {"spec.checkpoint": {"volume": {"claimName": "lake", "path": "/lake/orders", "mountPath": "/lake"}}}
KAFKA: dict[str, Any] = {}
FILES = {"spec.source": {"files": {"path": "/lake/incoming"}, "format": {"schema": "id BIGINT"}}}
KINESIS = {
    "spec.source": {"kinesis": {"streamName": "orders", "region": "eu-west-1"}, "format": {"schema": "id BIGINT"}}
}


def part(start: int, end: int, status: FailureStatus) -> FailureRow:
    return FailureRow(BatchNumber(4), FOLDER, ENDS[start], ENDS[end], status, "", "")


ASKED = (AskedRange.of(part(0, 3, FailureStatus.QUARANTINED)),)


@pytest.mark.parametrize(("changes", "name"), [(FILES, "source.files"), (KINESIS, "source.kinesis")])
def test_what_is_in_quarantine_is_replayed_and_all_else_is_refused_with_the_name_of_the_source(
    changes: dict[str, Any], name: str
) -> None:
    spec = parse_stream(document(changes), "the test").spec
    assert why_not_replayable(spec) is None
    assert f"no dead letters of {name}" in (why_not_replayable(spec, Replayed.DEAD_LETTERS) or "")
    assert f"of {name}, whose positions count no records" in (why_not_replayable(spec, Replayed.RANGES) or "")
    kafka = parse_stream(document(KAFKA), "the test").spec
    counted = [asked for asked in Replayed if asked is not Replayed.NAMED_INTO_OTHER]
    assert [why_not_replayable(kafka, asked) for asked in counted] == [None] * 4
    assert "positions of source.kafka are numbers" in (why_not_replayable(kafka, Replayed.NAMED_INTO_OTHER) or "")


def test_what_lies_between_two_moments_is_backfilled_from_a_folder_and_a_data_stream_into_another_table() -> None:
    between = Replayed.of_ranges(between=True, into_other=True)
    for source in (FILES, KINESIS):
        spec = parse_stream(document(source), "the test").spec
        assert why_not_replayable(spec, between) is None
        for asked in (
            Replayed.of_ranges(between=True, into_other=False),
            Replayed.of_ranges(between=False, into_other=True),
        ):
            assert "whose positions count no records" in (why_not_replayable(spec, asked) or "")
    named = Replayed.of_ranges(between=False, into_other=True, named=True)
    for source, words in ((FILES, "by the paths of files"), (KINESIS, "by positions as texts")):
        spec = parse_stream(document(source), "the test").spec
        assert why_not_replayable(spec, named) is None
        assert f"or {words}: --ranges with --into (named and into)" in (why_not_replayable(spec, Replayed.RANGES) or "")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([part(0, 3, FailureStatus.QUARANTINED)], "0 of 1 range have landed; 1 is in quarantine still."),
        (
            [part(0, 1, FailureStatus.REPLAYED), part(1, 2, FailureStatus.REPLAYED), part(2, 3, FailureStatus.QUARANTINED)],
            "0 of 1 range have landed; 1 is in quarantine still.",
        ),
        ([part(0, 1, FailureStatus.LOST), part(1, 3, FailureStatus.REPLAYED)], "0 of 1 range have landed; 1 is lost,"),
        ([part(0, 1, FailureStatus.REPLAYED), part(1, 3, FailureStatus.REPLAYED)], "1 of 1 range has landed."),
        ([part(0, 3, FailureStatus.SUPERSEDED)], "0 of 1 range have landed; 1 is left to the stream"),
    ],
)  # fmt: skip
def test_a_range_that_lands_in_parts_counts_as_one_and_its_records_are_not_counted(
    rows: list[FailureRow], words: str
) -> None:
    counted = tally(ASKED, rows)
    assert outcome(counted).startswith(words)
    status = recorded(ReplayStatus(), "uid", tally(ASKED, [part(0, 3, FailureStatus.QUARANTINED)]), NOW)
    assert (status.message, status.records) == ("1 range is being replayed.", None)
    ended = finished(status, counted, NOW)
    assert ended.records is None
    assert ended.ranges is not None
    assert ended.ranges.asked == 1
    is_whole = not any(row.status in (FailureStatus.QUARANTINED, FailureStatus.LOST) for row in rows)
    assert (ended.phase is ReplayPhase.SUCCEEDED) == is_whole


def asked_for(identifier: str) -> dict[str, Any]:
    made = replay()
    made["spec"]["from"] = {"failures": {"ids": [identifier]}}
    return made


def test_what_was_asked_for_is_carried_whole_and_its_id_can_be_asked_for() -> None:
    assert parse_asked(render_asked(ASKED)) == ASKED
    identifier = str(RangeKey.of(part(1, 3, FailureStatus.QUARANTINED)))
    found = parse_replay(asked_for(identifier), "the test")
    assert found.spec.from_.failures is not None
    assert found.spec.from_.failures.ids == (identifier,)


MANY = 2000


def test_an_attempt_carries_no_more_wide_ranges_than_a_config_map_holds() -> None:
    width = ENDS[3]
    long = Partition("/" + "folder/" * 40, 0)
    rows = [
        replace(part(0, 3, FailureStatus.QUARANTINED), batch=BatchNumber(each), partition=long, from_offset=width - 1)
        for each in range(10**6, 10**6 + MANY)
    ]
    found = chosen(FailedRanges(), [RecordedFailure(row, NOW) for row in rows], "shop/orders", "")
    assert 0 < len(found) < MANY
    orders = ReplayOrders(tuple(AskedRange.of(it.row) for it in found), tuple(RangeKey.of(it.row) for it in found))
    stream = parse_stream(document(FILES), "the test")
    defaults = PodDefaults("spark", Image("registry.example/spark:1", "IfNotPresent", ()))
    made = replay_manifests(parse_replay(replay(), "the test"), "uid", stream, Epoch(1), defaults, orders)
    assert sum(len(text) for text in made.config_map["data"].values()) < 1_000_000
    assert f"One replay takes {len(found)} ranges" in outcome(tally(orders.asked, [it.row for it in found]))


def test_a_report_names_what_nobody_could_count_and_else_is_what_an_earlier_release_reads() -> None:
    assert "uncounted" not in json.loads(ReplayReport(landed=3).render())
    report = ReplayReport(landed=3, uncounted=2)
    assert ReplayReport.parse(report.render()) == report
    assert ReplayReport.parse(report.render(300)) == report
    with CliRunner().isolation() as (out, *_):
        tell(report, None)
        assert b"Of 2 parts beside these that failed or are lost" in out.getvalue()


@pytest.mark.parametrize(("changes", "mounts"), [(FILES, True), (KINESIS, False), (KAFKA, False)])
def test_a_pod_has_the_claim_of_the_checkpoint_where_the_lists_of_a_folder_are_in_it(
    changes: dict[str, Any], mounts: bool
) -> None:
    stream = parse_stream(document({**changes, **ON_A_CLAIM}), "the test")
    defaults = PodDefaults("spark", Image("registry.example/spark:1", "IfNotPresent", ()))
    orders = ReplayOrders(ASKED, ())
    pod = replay_manifests(parse_replay(replay(), "the test"), "uid", stream, Epoch(1), defaults, orders).pod
    assert ("persistentVolumeClaim" in json.dumps(pod["spec"]["volumes"])) == mounts
    assert ("/lake" in [it["mountPath"] for it in pod["spec"]["containers"][0]["volumeMounts"]]) == mounts


def test_attempts_that_have_landed_parts_are_not_said_to_have_landed_nothing() -> None:
    """A part is no progress that the operator counts, and four attempts that die behind one end the replay."""
    rows = [part(0, 1, FailureStatus.REPLAYED), part(1, 3, FailureStatus.QUARANTINED)]
    status = recorded(ReplayStatus(endings=MOST_ENDINGS - 1), "uid", tally(ASKED, rows), NOW)
    ended = after_attempt(status, AttemptEnd(None, "The node is on fire"), tally(ASKED, rows), NOW)
    assert ended.phase is ReplayPhase.FAILED
    assert ended.message.startswith(
        "4 attempts in a row ended without landing a whole range; the latest: The node is on"
    )


@pytest.mark.parametrize("length", [20, 1000])
def test_the_ranges_of_a_replay_fit_into_one_config_map_however_long_the_path_of_their_folder_is(length: int) -> None:
    """The API server takes no ConfigMap of more than 1,048,576 bytes, so the replay would never begin."""
    place = Partition(f"/{'x' * length}", 0)
    kept = [
        RecordedFailure(
            FailureRow(BatchNumber(number), place, ENDS[2], ENDS[3], FailureStatus.QUARANTINED, "", "", life="1"), NOW
        )
        for number in range(MOST_RANGES + 1)
    ]
    wanted = parse_replay(replay(), "the test").spec.from_.failures
    assert wanted is not None
    found = tuple(AskedRange.of(it.row) for it in chosen(wanted, kept, "orders", "1"))
    stream = parse_stream(document({**FILES, **ON_A_CLAIM}), "the test")
    defaults = PodDefaults("spark", Image("registry.example/spark:1", "IfNotPresent", ()))
    orders = ReplayOrders(found, tuple(RangeKey(it.batch, it.partition, it.from_offset) for it in found))
    made = replay_manifests(parse_replay(replay(), "the test"), "uid", stream, Epoch(1), defaults, orders).config_map
    assert sum(len(text.encode()) for text in made["data"].values()) < 1_000_000
    assert (len(found) == MOST_RANGES) == (length == 20)
    assert len(found) > 300
    rows = [FailureRow(it.batch, place, ENDS[2], ENDS[3], FailureStatus.REPLAYED, "", "") for it in found]
    words = outcome(tally(found, rows))
    assert f"One replay takes {len(found)} ranges; another one takes what else is in quarantine." in words
