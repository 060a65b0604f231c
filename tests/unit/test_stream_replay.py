"""The resource StreamReplay: what it takes, what it refuses with one sentence, and its definition."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from exactlyonce.api.conditions import READY, RECONCILING, STALLED
from exactlyonce.api.resource import ResourceInvalid
from exactlyonce.api.stream_replay import FailedRanges, parse_replay, read_replays
from exactlyonce.api.stream_replay_status import REPLAY_TRANSITIONS, ReplayPhase, ReplayStatus, rendered_replay
from exactlyonce.cli.main import main
from exactlyonce.launch.asked_ranges import MOST_RANGES, AskedRange, tally
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.replay_choice import RangesRefused, batches_of, chosen
from exactlyonce.reconcile.stream_replay import outcome
from exactlyonce.schema.constraints import VALIDATIONS
from scripts import generate_crd, resource_kinds
from tests.unit.replay_documents import BEGIN, ROW, failed, replay
from tests.unit.test_resource_schema import every

EXAMPLE = Path("examples/replay-of-orders.yaml")
ROOT: dict[str, Any] = generate_crd.definition(resource_kinds.REPLAY)["spec"]["versions"][0]["schema"][
    "openAPIV3Schema"
]
SPEC, STATUS = ROOT["properties"]["spec"], ROOT["properties"]["status"]


def test_the_definition_and_the_charts_copy_are_what_the_models_say() -> None:
    kind = resource_kinds.REPLAY
    assert kind.crd.read_text() == generate_crd.crd_text(kind), "python -m scripts.generate_crd"
    assert kind.chart.read_text() == generate_crd.chart_text(kind), "python -m scripts.generate_crd"
    assert "helm.sh/resource-policy: keep" in kind.chart.read_text()


def test_every_field_has_a_description_and_one_type_and_the_spec_is_bounded() -> None:
    for path, field in [*every(SPEC, "spec"), *every(STATUS, "status")]:
        if not path.endswith((".items", ".additionalProperties")):
            assert field["description"].endswith("."), path
    for path, field in every(SPEC, "spec"):
        is_text = field["type"] == "string" and "format" not in field
        bounds = {
            "string": {"maxLength"} if is_text else set(),
            "integer": {"minimum", "maximum"},
            "array": {"maxItems"},
        }
        assert bounds.get(field["type"], set()) <= set(field), path
    unbounded = {key: value for key, value in STATUS.items() if key != "default"}
    for path, field in every(unbounded, "status"):
        assert not {"default", "maxLength", "maxItems", "minimum", VALIDATIONS} & set(field), path


def test_every_column_shows_a_field_that_exists() -> None:
    places = {place for place, _ in [*every(STATUS, ".status"), *every(SPEC, ".spec")]}
    columns = [path for _, _, path, _, _ in resource_kinds.REPLAY.columns if not path.startswith(".metadata")]
    assert [path for path in columns if path not in places] == []


def test_the_spec_may_not_change() -> None:
    assert {
        "rule": "self == oldSelf",
        "message": "a StreamReplay never changes; delete it, or create another one with another name",
    } in SPEC[VALIDATIONS]


def test_the_example_is_valid_and_validate_takes_it() -> None:
    (found,) = read_replays(EXAMPLE)
    assert found.spec.stream == "orders"
    assert found.spec.from_.failures == FailedRanges(
        from_=datetime(2026, 11, 24, 22, tzinfo=UTC),
        until=datetime(2026, 11, 25, 6, tzinfo=UTC),
        error_matching="division by zero",
    )
    result = CliRunner().invoke(main, ["validate", str(EXAMPLE)])
    assert (result.exit_code, result.stdout) == (0, f"{EXAMPLE}: StreamReplay shop/orders-without-division is valid.\n")


def test_validate_checks_streams_and_replays_of_one_file(tmp_path: Path) -> None:
    both = tmp_path / "both.yaml"
    both.write_text(f"{Path('examples/orders.yaml').read_text()}\n---\n{EXAMPLE.read_text()}")
    result = CliRunner().invoke(main, ["validate", str(both)])
    assert result.exit_code == 0
    assert [line.split(": ")[1].split()[0] for line in result.stdout.splitlines()] == [
        "ExactlyOnceStream",
        "StreamReplay",
    ]
    both.write_text(both.read_text().replace("limit: 500", "limit: none"))
    result = CliRunner().invoke(main, ["validate", str(both)])
    assert (result.exit_code, "spec.limit: " in result.stderr) == (1, True)


def positions(*spans: tuple[int, int]) -> dict[str, Any]:
    return {
        "from": {
            "ranges": {"positions": [{"topic": "orders", "partition": 0, "from": a, "until": b} for a, b in spans]}
        }
    }


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"stream": None}, "spec.stream: this field is required; give it a value."),
        ({"stream": "Orders"}, "spec.stream: 'Orders' will not do; write the name of an ExactlyOnceStream"),
        ({"from": {}}, "spec.from: give exactly one of: failures, deadLetters, ranges."),
        ({"from": {"failures": {"ids": ["340"]}}}, "spec.from.failures.ids.0: '340' will not do; write an id as"),
        ({"from": {"failures": {"ids": ["1/a-0/2", "1/a-0/2"]}}}, "1/a-0/2 stands in it twice; name it once."),
        (
            {"from": {"failures": {"from": "yesterday"}}},
            "'yesterday' is not a timestamp; write it as 2026-01-31T00:00:00Z.",
        ),
        (
            {"from": {"failures": {"from": "2026-01-02T00:00:00Z", "until": "2026-01-02T00:00:00Z"}}},
            "spec.from.failures: from is earlier than until.",
        ),
        (
            {"from": {"failures": {}, "deadLetters": {}}},
            "spec.from: give exactly one of: failures, deadLetters, ranges.",
        ),
        ({"from": {"deadLetters": {"ids": ["340"]}}}, "write an id as exactlyonce dead-letters shows it"),
        ({"from": {"ranges": {}}}, "spec.from.ranges: give exactly one of: positions, named, byTimestamp."),
        (
            {"from": {"ranges": {"named": [{"origin": "a", "partition": "b", "from": "c", "until": "d"}]}}},
            "from.ranges.named needs into: such ranges land into another table only.",
        ),
        (positions((5, 5)), "a range ends behind its beginning: until is greater than from"),
        (positions((0, 10), (9, 20)), "ranges of one partition overlap; give each record once."),
        (
            {"from": {"ranges": {"byTimestamp": {"from": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}}}},
            "spec.from.ranges.byTimestamp: from is earlier than until.",
        ),
        ({"transform": {"python": {}}}, "spec.transform.python: there is no such field"),
        ({"limit": 0}, "spec.limit: should be greater than or equal to 1 (it is 0)."),
        ({"chunk": 10_000_000}, "spec.chunk: should be less than or equal to 1000000"),
    ],
)
def test_an_invalid_replay_is_refused_with_a_sentence(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ResourceInvalid) as caught:
        parse_replay(replay(**spec), "the file")
    assert sentence in str(caught.value)


def kept(*rows: Any) -> tuple[RecordedFailure, ...]:
    return tuple(RecordedFailure(row, BEGIN + timedelta(minutes=row.batch)) for row in rows)


def test_ranges_are_chosen_by_every_field_that_is_given() -> None:
    rows = kept(
        failed(9, 0, 70, 85), failed(4, 1, 0, 5), failed(4, 0, 10, 20), failed(5, 0, 20, 21, FailureStatus.LOST)
    )

    def ids(**fields: Any) -> list[str]:
        found = chosen(FailedRanges.model_validate(fields), rows, "shop/orders", ROW.life)
        return [it.identifier for it in found]

    assert ids() == ["4/orders-0/10", "4/orders-1/0", "9/orders-0/70"], (
        "the earliest batch first, and nothing that is lost"
    )
    assert ids(ids=["9/orders-0/70"]) == ["9/orders-0/70"]
    assert ids(until=BEGIN + timedelta(minutes=9)) == ["4/orders-0/10", "4/orders-1/0"]
    assert ids(**{"from": BEGIN + timedelta(minutes=9)}) == ["9/orders-0/70"]
    assert ids(errorMatching="DIVISION") != []
    assert ids(errorMatching="overflow") == []
    assert batches_of(FailedRanges(ids=("9/orders-0/70", "4/orders-1/0"))) == (BatchNumber(4), BatchNumber(9))


@pytest.mark.parametrize(
    ("identifier", "life", "sentence"),
    [
        ("9/orders-7/70", ROW.life, "shop/orders has no failed range 9/orders-7/70;"),
        ("5/orders-0/20", ROW.life, "The range 5/orders-0/20 is Lost:"),
        ("9/orders-0/70", "another-life", "was quarantined before the stream started over"),
    ],
)
def test_a_range_that_is_named_and_cannot_be_replayed_is_refused_by_its_name(
    identifier: str, life: str, sentence: str
) -> None:
    rows = kept(failed(9, 0, 70, 85), failed(5, 0, 20, 21, FailureStatus.LOST))
    with pytest.raises(RangesRefused) as caught:
        chosen(FailedRanges(ids=(identifier,)), rows, "shop/orders", life)
    assert sentence in str(caught.value)


def test_of_more_ranges_than_a_config_map_holds_the_earliest_are_taken_and_the_rest_is_told() -> None:
    rows = kept(*(failed(number, 0, 2 * number, 2 * number + 2) for number in reversed(range(MOST_RANGES + 1))))
    found = chosen(FailedRanges(), rows, "shop/orders", ROW.life)
    assert [it.row.batch for it in found] == list(range(MOST_RANGES))
    told = outcome(tally([AskedRange.of(it.row) for it in found], []))
    assert told.endswith("One replay takes 2000 ranges; another one takes what else is in quarantine.")
    assert "another one" not in outcome(tally([AskedRange.of(it.row) for it in found[1:]], []))


def test_records_that_failed_by_themselves_before_are_chosen_behind_all_others() -> None:
    alone = [failed(number, 0, number, number + 1) for number in range(MOST_RANGES)]
    found = chosen(FailedRanges(), kept(*alone, failed(9000, 0, 9000, 9010)), "shop/orders", ROW.life)
    assert [it.row.batch for it in found[:2]] == [9000, 0], "ten that fail each time end each replay"


def test_of_records_that_failed_by_themselves_those_are_chosen_first_that_were_tried_longest_ago() -> None:
    rows = [failed(number, 0, number, number + 1) for number in range(MOST_RANGES + 5)]
    tried = {row.batch: BEGIN + timedelta(days=1) if row.batch < MOST_RANGES else BEGIN for row in rows}
    found = chosen(FailedRanges(), [RecordedFailure(row, tried[row.batch]) for row in rows], "shop/orders", ROW.life)
    assert [it.row.batch for it in found[:6]] == [*range(MOST_RANGES, MOST_RANGES + 5), 0]


def test_what_is_in_quarantine_at_the_end_is_named() -> None:
    whole = failed(4, 0, 10, 20)
    parts = [
        replace(whole, until_offset=15, status=FailureStatus.REPLAYED),
        replace(whole, from_offset=15, until_offset=16),
        replace(whole, from_offset=16, status=FailureStatus.REPLAYED),
    ]
    told = outcome(tally([AskedRange.of(whole)], parts))
    assert told == "9 of 10 records have landed; 1 is in quarantine still. In quarantine: 4/orders-0/15."


def test_every_phase_is_reached_and_exactly_one_condition_is_true_in_each() -> None:
    reached = {after for following in REPLAY_TRANSITIONS.values() for after in following} | {ReplayPhase.PENDING}
    assert reached == set(ReplayPhase)
    found = {}
    for phase in ReplayPhase:
        rendered = rendered_replay(ReplayStatus(phase=phase, message="It is so."), replay(), BEGIN)
        (found[phase],) = [it["type"] for it in rendered["conditions"] if it["status"] == "True"]
    assert found == {
        ReplayPhase.PENDING: RECONCILING,
        ReplayPhase.RUNNING: RECONCILING,
        ReplayPhase.SUCCEEDED: READY,
        ReplayPhase.FAILED: STALLED,
        ReplayPhase.REFUSED: STALLED,
    }


def test_a_replay_comes_back_as_it_was_written() -> None:
    written = yaml.safe_load(EXAMPLE.read_text())
    found = parse_replay(written, "the example").spec.to_document()
    assert {**found, "from": None} == {**written["spec"], "dryRun": False, "from": None}
