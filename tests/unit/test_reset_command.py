"""`exactlyonce offsets reset`: what it prints, what it asks for, and for which streams it writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.api.resource import RESET_OFFSETS, Stream, parse_stream
from exactlyonce.api.source import Source
from exactlyonce.cli import cluster_offsets, reset_offsets, reset_subject
from exactlyonce.cli.local_answers import LocalReset
from exactlyonce.cli.local_stream import choose_stream, open_stream
from exactlyonce.cli.main import main
from exactlyonce.cli.reset_subject import Subject
from exactlyonce.cli.reset_target import TargetInvalid, resolved
from exactlyonce.connectors.kinesis.codec import CODEC
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, from_text
from exactlyonce.control.cluster_reader import ReadRefused
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.known_loads import FoundLoad, KnownLoads
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import BatchNumber, Partition, Positions
from exactlyonce.reconcile.asked_reset import AskedReset
from exactlyonce.source.port import Bounds, SourceView
from tests.resource_documents import GONE, document
from tests.simulation.source import MemoryTopic
from tests.unit.decide.facts import ONE, ZERO, at, ledger, ranges

PLACES = {"spec.checkpoint": {"local": {"path": "/checkpoints/orders"}}}
A, B = Partition("orders", "shardId-000000000000"), Partition("orders", "shardId-000000000001")
OFFSETS = main.commands["offsets"]


KEYED = {"spec.sink.postgres.write": "Upsert", "spec.sink.postgres.keys": ["id"]}


def the_stream(**changes: Any) -> Stream:
    return parse_stream(document({**PLACES, **changes}), "a test")


@dataclass
class StreamAtRest:
    """A stream of which the ledger shows this view, and what was written for it."""

    view: LedgerView | None = field(default_factory=ledger)
    ends: dict[Partition, int] = field(default_factory=lambda: {ZERO: 100, ONE: 100})
    starts: dict[Partition, int] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    stream: Stream = field(default_factory=the_stream)

    def subject(self) -> Subject:
        topic = MemoryTopic(self.ends, self.starts)
        return Subject(
            self.stream, lambda: self.view, lambda _: topic, "jane", "the annotation", "Now.", self.refused.append,
            self.written.append,
        )  # fmt: skip

    @property
    def request(self) -> AskedReset:
        (text,) = self.written
        return AskedReset.from_json(text)


Reset = Callable[..., Result]


@pytest.fixture
def stream() -> StreamAtRest:
    return StreamAtRest()


@pytest.fixture
def reset(stream: StreamAtRest, monkeypatch: pytest.MonkeyPatch) -> Reset:
    def run(*arguments: str) -> Result:
        monkeypatch.setattr(reset_offsets, "subject_of", lambda target, options, at_rest: stream.subject())
        return CliRunner().invoke(main, ["offsets", "reset", "orders", "-n", "shop", *arguments])

    return run


def lines(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()[1:3]]


def test_a_dry_run_prints_before_and_after_with_what_is_skipped_and_repeated_and_writes_nothing(
    stream: StreamAtRest, reset: Reset
) -> None:
    result = reset("--to", '{"orders":{"0":60,"1":5}}')
    assert lines(result) == [["orders", "0", "40", "60", "20", "0"], ["orders", "1", "30", "5", "0", "25"]]
    assert "20 records are skipped and recorded as lost, 25 are read again." in result.stdout
    assert "Nothing was written: with --yes and --why this is asked for." in result.stderr
    assert stream.written == []


def test_a_program_gets_the_same_table(stream: StreamAtRest, reset: Reset) -> None:
    found = json.loads(reset("--to", '{"orders":{"0":60}}', "-o", "json", "--keep-skipped").stdout)
    assert (found["stream"], found["keepSkipped"]) == ("shop/orders", True)
    assert [tuple(row.values()) for row in found["partitions"]] == [
        ("orders", 0, 40, 60, 20, 0),
        ("orders", 1, 30, 30, 0, 0),
    ]


def test_with_yes_the_request_names_the_batch_all_positions_who_and_why(stream: StreamAtRest, reset: Reset) -> None:
    result = reset("--to", '{"orders":{"1":5}}', "--why", "a wrong join", "--keep-skipped", "--yes")
    assert result.exit_code == 0, result.output
    asked = stream.request
    assert (asked.batch, asked.before, asked.after) == (4, at(40, 30), at(40, 5))
    assert (asked.by, asked.message, asked.keeps_skipped) == ("jane", "a wrong join", True)
    assert "This is written to the annotation. Now." in result.stderr
    assert stream.refused == stream.written, "what the next launch would say was asked for first"


def test_the_request_names_a_load_that_the_sink_has_and_the_ledger_did_not_know_then(
    stream: StreamAtRest, reset: Reset
) -> None:
    stream.view = ledger(loads=KnownLoads(None, FoundLoad("label-5", BatchNumber(5))))
    assert reset("--to", '{"orders":{"0":60}}', "--why", "it is there", "--yes").exit_code == 0
    assert stream.request.load == "label-5"


def test_earliest_and_landed_are_resolved_for_every_partition(stream: StreamAtRest, reset: Reset) -> None:
    stream.starts = {ZERO: 7}
    reset("--to", "earliest", "--why", "x", "--yes", "--by", "joe")
    assert (stream.request.after, stream.request.by) == (at(7, 0), "joe")
    stream.written.clear()
    reset("--to", "landed", "--why", "x", "--yes")
    assert stream.request.after == stream.request.before == at(40, 30)


def test_withdrawing_writes_an_empty_request(stream: StreamAtRest, reset: Reset) -> None:
    result = reset("--withdraw")
    assert (result.exit_code, stream.written) == (0, [""])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give either --to"),
        (("--to", "latest", "--withdraw"), "Give either --to"),
        (("--to", "latest", "--yes"), "--yes needs --why"),
        (("--to", "latest", "--yes", "--why", "  "), "--yes needs --why"),
    ],
)
def test_a_command_that_is_written_wrong_says_what_is_missing(
    stream: StreamAtRest, reset: Reset, arguments: tuple[str, ...], said: str
) -> None:
    result = reset(*arguments)
    assert (result.exit_code, stream.written) == (2, [])
    assert said in " ".join(result.stderr.split())


DECIDED = DecidedBatch(BatchNumber(5), (Committable("a", "1", 1, ranges()),))


@pytest.mark.parametrize(
    ("to", "view", "said"),
    [
        ("earliest", None, "Nothing of shop/orders has landed"),
        ("earliest", ledger(None, at(), ()), "Nothing of shop/orders has landed"),
        ("earliest", ledger(stateful=True), "the query keeps state"),
        ("earliest", replace(ledger(), decided=DECIDED), "batch 5 is decided"),
        ("earliest", ledger(0), "nothing has landed since the stream started"),
        ("earliest", ledger(stands=Positions({Partition("refunds", 0): 3})), "spec.source no longer reads refunds-0"),
        ('{"orders":{"0":101}}', ledger(), "holds orders-0 up to 100, and the stream would stand at 101"),
        ('{"orders":{"7":1}}', ledger(), "--to names orders-7, of which nothing has landed"),
        ('{"orders":{"0":"x"}}', ledger(), "--to has no positions of this source"),
        ("{", ledger(), "--to has no positions of this source"),
        ("newest", ledger(), "--to 'newest' names no positions; write earliest, latest, landed"),
        ("timestamp=soon", ledger(), "has no time in it"),
        ("timestamp=2026-01-31T12:00:00", ledger(), "has no time zone"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_one_sentence_and_nothing_is_written(
    stream: StreamAtRest, reset: Reset, to: str, view: LedgerView | None, said: str
) -> None:
    stream.view = view
    result = reset("--to", to, "--why", "x", "--yes")
    assert (result.exit_code, stream.written) == (1, [])
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@dataclass
class Opened:
    """A source of shards that answers for each start what it is told to."""

    answer: dict[Partition, int]
    started: list[Source] = field(default_factory=list)
    codec = CODEC

    def __call__(self, source: Source) -> Any:
        self.started.append(source)
        return self

    def view(self, *_: object) -> SourceView:
        return SourceView(
            {A: Bounds(TRIM_HORIZON, SHARD_END), B: Bounds(TRIM_HORIZON, SHARD_END)}, {}, frozenset({A, B})
        )

    def start(self, view: SourceView) -> Positions:
        return Positions(self.answer)


@pytest.mark.parametrize("to", ["latest", "timestamp=2026-01-31T12:00:00Z", '{"/incoming":{"0":"2:00"}}'])
def test_a_position_that_stands_for_what_was_read_cannot_be_named(to: str) -> None:
    folder = {"files": {"path": "/incoming"}, "format": {"schema": "id BIGINT"}}
    with pytest.raises(
        TargetInvalid, match=r"cannot be used with spec\.source\.files, .+; write earliest or landed\.$"
    ):
        resolved(to, Positions({A: 7}), Source.model_validate(folder), Opened({}))


def of_shards() -> Source:
    kinesis = {"streamName": "orders", "region": "eu-west-1"}
    return the_stream(**{"spec.source.kafka": GONE, "spec.source.kinesis": kinesis}).spec.source


def test_a_moment_is_asked_of_the_source_as_the_start_of_a_new_stream() -> None:
    opened = Opened({A: from_text("after 7")})
    found = resolved("timestamp=2026-01-31T12:00:00+01:00", Positions({A: from_text("after 90")}), of_shards(), opened)
    assert found == Positions({A: from_text("after 7")})
    start: Any = opened.started[0].spec.to_document()["start"]  # type: ignore[attr-defined]
    assert (start["from"], start["timestamp"]) == ("Timestamp", "2026-01-31T12:00:00+01:00")


def test_a_shard_that_follows_on_one_that_is_to_be_read_begins_at_its_start_and_an_ended_one_stays() -> None:
    landed = Positions({A: SHARD_END, B: from_text("after 90")})
    assert resolved("latest", landed, of_shards(), Opened({A: 0})) == Positions({A: SHARD_END, B: TRIM_HORIZON})


def test_a_shard_that_could_be_passed_over_to_its_end_stays() -> None:
    landed = Positions({A: from_text("after 90")})
    assert resolved("latest", landed, of_shards(), Opened({A: SHARD_END})) == landed


def test_positions_of_shards_are_written_as_the_offset_log_has_them() -> None:
    landed = Positions({A: from_text("after 90"), B: from_text("after 91")})
    found = resolved('{"orders":{"shardId-000000000000":"after 7"}}', landed, of_shards(), Opened({}))
    assert found == Positions({A: from_text("after 7"), B: from_text("after 91")})
    with pytest.raises(TargetInvalid, match="where a position belongs"):
        resolved('{"orders":{"shardId-000000000000":7}}', landed, of_shards(), Opened({}))


@dataclass
class FakeCluster:
    """A cluster with one stream; `conflicts` is how many writes find that somebody else was first."""

    phase: str | None = "Suspended"
    conflicts: int = 0
    who: str | None = "jane@example.org"
    suspend: bool = True
    written: list[tuple[str, str]] = field(default_factory=list)

    def stream(self, namespace: str, name: str) -> dict[str, Any]:
        found = document({**PLACES, "spec.suspend": self.suspend})
        return {**found, "status": {} if self.phase is None else {"phase": self.phase}}

    def annotate(self, stream: dict[str, Any], key: str, value: str, what: str) -> dict[str, Any] | None:
        if self.conflicts:
            self.conflicts -= 1
            return None
        self.written.append((key, value))
        return stream

    def person(self) -> str:
        if self.who is None:
            raise ReadRefused("You may not ask.")
        return self.who


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    found = FakeCluster()
    monkeypatch.setattr(reset_subject, "cluster_of", lambda options: (found, "shop"))
    topic = MemoryTopic({ZERO: 100, ONE: 100})

    class Ledger:
        def view(self, stream_id: str) -> LedgerView:
            return ledger()

    class Address:
        def open(self) -> MemoryTopic:
            return topic

    monkeypatch.setattr(cluster_offsets, "cluster_ledger", lambda *_: Ledger())
    monkeypatch.setattr(cluster_offsets, "source_with_own_login", lambda *_: Address())
    return found


def on_the_cluster(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["offsets", "reset", "orders", "-n", "shop", *arguments])


def test_a_request_for_a_stream_of_the_cluster_becomes_its_annotation(cluster: FakeCluster) -> None:
    cluster.conflicts = 2
    result = on_the_cluster("--to", "earliest", "--why", "x", "--yes")
    assert result.exit_code == 0, result.output
    ((key, text),) = cluster.written
    assert (key, AskedReset.from_json(text).by) == (RESET_OFFSETS, "jane@example.org")
    assert "once the stream is resumed: `exactlyonce resume orders -n shop`" in result.stderr


def test_a_halted_stream_is_reset_at_once_whoever_asks(cluster: FakeCluster) -> None:
    cluster.phase, cluster.suspend, cluster.who = "Halted", False, None
    result = on_the_cluster("--to", "earliest", "--why", "x", "--yes")
    assert "The operator does it now." in result.stderr
    assert AskedReset.from_json(cluster.written[0][1]).by


@pytest.mark.parametrize("phase", ["Running", "Draining", "BackingOff", "Launching", None])
def test_a_stream_that_runs_or_may_run_is_suspended_first(cluster: FakeCluster, phase: str | None) -> None:
    cluster.phase = phase
    result = on_the_cluster("--to", "earliest", "--why", "x", "--yes")
    assert (result.exit_code, cluster.written) == (1, [])
    assert f"shop/orders is {phase or 'Pending'}: " in result.stderr
    assert "Run `exactlyonce suspend orders -n shop --wait` first. Nothing was written." in result.stderr


def test_a_request_can_be_withdrawn_whatever_the_stream_does(cluster: FakeCluster) -> None:
    cluster.phase = "Running"
    assert on_the_cluster("--withdraw").exit_code == 0
    assert cluster.written == [(RESET_OFFSETS, "")]


def test_somebody_who_changes_the_stream_all_the_time_is_told(cluster: FakeCluster) -> None:
    cluster.conflicts = 99
    result = on_the_cluster("--to", "earliest", "--why", "x", "--yes")
    assert (result.exit_code, cluster.written) == (1, [])
    assert "is being changed by somebody else all the time; nothing was written" in result.stderr


def test_a_request_beside_a_file_is_read_by_the_next_run(tmp_path: Path) -> None:
    kept = LocalReset(tmp_path / "shop.orders" / "reset-offsets")
    kept.write("a request")
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump(document(PLACES)))
    secrets = tmp_path / "secrets" / "warehouse"
    secrets.mkdir(parents=True)
    (secrets / "uri").write_text("postgresql://nobody@127.0.0.1:1/none")
    opened = open_stream(choose_stream(file, None), tmp_path, tmp_path / "secrets", read_only=True)
    assert opened.stream.metadata.annotations[RESET_OFFSETS] == "a request"
    opened.reset.write("")
    opened = open_stream(choose_stream(file, None), tmp_path, tmp_path / "secrets", read_only=True)
    assert RESET_OFFSETS not in opened.stream.metadata.annotations


@pytest.mark.parametrize("name", ["show", "reset"])
def test_the_commands_below_offsets_teach_what_can_be_typed(name: str) -> None:
    assert isinstance(OFFSETS, click.Group)
    command: Any = OFFSETS.commands[name]
    printed = CliRunner().invoke(main, ["offsets", name, "--help"]).output
    for line, words in command.examples:
        assert line in printed, line
        assert words.split()[0] in printed
    assert all((option.help or "").endswith(".") for option in command.params if isinstance(option, click.Option))


def test_offsets_without_a_command_shows_and_a_stream_named_like_one_is_shown_by_show() -> None:
    told = CliRunner().invoke(main, ["offsets", "nowhere.yaml"])
    assert "nowhere.yaml: the file cannot be read" in told.stderr
    assert "Usage: main offsets show" in CliRunner().invoke(main, ["offsets"]).stderr


def test_what_is_to_be_kept_although_no_replay_would_land_it_is_told_and_kept(
    stream: StreamAtRest, reset: Reset
) -> None:
    words = "as the resource stands no replay would land it: write: Upsert has no version"
    forward = ("--to", '{"orders":{"0":60}}', "--why", "a wrong join", "--yes")
    assert words not in reset(*forward, "--keep-skipped").stderr
    stream.stream = the_stream(**KEYED)
    assert words not in reset(*forward).stderr, "it is recorded as lost"
    assert words not in reset("--to", '{"orders":{"0":1}}', "--keep-skipped").stderr, "nothing is skipped"
    result = reset(*forward, "--keep-skipped")
    assert (result.exit_code, words in result.stderr) == (0, True)
    assert stream.written
