"""A StreamReplay in a file asks for the same as the options of the command, and its stream is found or asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from exactlyonce.api.resource import ResourceInvalid, parse_stream
from exactlyonce.api.stream_replay import parse_replay
from exactlyonce.cli.asked_replay import DEAD_LETTERS, FAILURES, RANGES, AskedReplay
from exactlyonce.cli.cluster_replay import replay_of
from exactlyonce.cli.main import main
from exactlyonce.cli.replay_resource import chosen_replay
from tests.resource_documents import document
from tests.unit.replay_documents import replay

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MOMENTS = (datetime(2026, 1, 1, 12), datetime(2026, 2, 1))
CHUNK = 10_000
ASKED = [
    AskedReplay(FAILURES, chunk=CHUNK),
    AskedReplay(FAILURES, ("12/orders-0/340", "13/orders-1/0"), MOMENTS, "division", limit=500.0, chunk=7),
    AskedReplay(DEAD_LETTERS, ("orders-0/340",), chunk=CHUNK),
    AskedReplay(DEAD_LETTERS, matching="no JSON", between=MOMENTS, chunk=CHUNK),
    AskedReplay(RANGES, given=('{"orders": {"0": [100, 200]}}', '{"orders": {"1": [0, 7]}}'), chunk=CHUNK),
    AskedReplay(RANGES, by_timestamp=MOMENTS, chunk=CHUNK),
    AskedReplay(RANGES, by_timestamp=MOMENTS, into="public.orders_v2", backfill="january", chunk=CHUNK),
    AskedReplay(
        RANGES, given=('{"orders": {"shard-1": ["after 7", "9:2"]}}',), into="v2", backfill="by-hand", chunk=CHUNK
    ),
]


@pytest.mark.parametrize("asked", ASKED, ids=lambda it: it.kind)
def test_what_the_command_asks_of_a_cluster_is_what_a_file_with_its_streamreplay_asks_for(asked: AskedReplay) -> None:
    made = replay_of(parse_stream(document({}), "the test"), asked, NOW)
    assert AskedReplay.of_resource(parse_replay(made, "the test")) == asked


def test_a_moment_that_is_left_out_is_open_and_one_of_another_zone_is_meant_in_utc() -> None:
    origin: dict[str, Any] = {"from": {"failures": {"from": "2026-01-01T14:00:00+02:00"}}}
    asked = AskedReplay.of_resource(parse_replay(replay(**origin), "the test"))
    assert asked.between == (MOMENTS[0], datetime.max)


def written(tmp_path: Path, *documents: dict[str, Any]) -> Path:
    file = tmp_path / "resources.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return file


def named(name: str, **spec: Any) -> dict[str, Any]:
    made = replay(**spec)
    return {**made, "metadata": {**made["metadata"], "name": name}}


STREAM = document({})


def test_a_file_of_a_stream_is_run_as_a_stream_and_a_replay_in_it_when_it_is_named(tmp_path: Path) -> None:
    assert chosen_replay(written(tmp_path, STREAM), None) is None
    both = written(tmp_path, STREAM, named("mend"), named("again"))
    assert chosen_replay(both, None) is None
    assert chosen_replay(both, STREAM["metadata"]["name"]) is None
    found = chosen_replay(both, "mend")
    assert found is not None
    assert found.metadata.name == "mend"
    only = chosen_replay(written(tmp_path, named("mend")), None)
    assert only is not None


@pytest.mark.parametrize(
    ("documents", "name"),
    [
        ((named("mend"), named("again")), None),
        ((named("mend"), named("again")), "nobody"),
        ((STREAM, named(STREAM["metadata"]["name"])), STREAM["metadata"]["name"]),
    ],
)
def test_where_nothing_tells_which_one_is_meant_all_are_named(
    tmp_path: Path, documents: tuple[dict[str, Any], ...], name: str | None
) -> None:
    with pytest.raises(ResourceInvalid, match=r"it holds .*mend|it holds .*orders.*; choose one with --name"):
        chosen_replay(written(tmp_path, *documents), name)


@pytest.mark.parametrize(
    ("documents", "options", "words"),
    [
        ((named("mend", stream="others"),), (), "StreamReplay mend is of the stream shop/others, which"),
        ((STREAM, named("mend", stream="others")), ("--name", "mend"), "name the file that does with --stream-file."),
        (
            (STREAM,),
            ("--stream-file", "resources.yaml"),
            "--stream-file is for a FILE with a StreamReplay; leave it out.",
        ),
        ((STREAM, named("mend")), ("--name", "mend", "-o", "json"), "-o json is for a stream; leave it out"),
    ],
)
def test_what_cannot_be_run_is_told_in_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    documents: tuple[dict[str, Any], ...],
    options: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, *documents)
    result = CliRunner().invoke(main, ["run", "resources.yaml", *options])
    assert result.exit_code != 0
    assert words in " ".join(result.output.split())
