"""What a person is told of a stream into Doris that is valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from exactlyonce.api.advice import advice_of
from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.cli.main import main
from tests.resource_documents import DORIS, document

LONG = "/checkpoints" + "/of-a-team" * 12


def changes(location: str, **more: Any) -> dict[str, Any]:
    sink = {"spec.sink": {"doris": {**DORIS, "labelFormat": "Compatible", **more.pop("sink", {})}}}
    return {**sink, "spec.checkpoint": {"local": {"path": location}}, "spec.trigger": {"interval": "60s"}, **more}


def stream(location: str, name: str = "orders", **more: Any) -> Stream:
    return parse_stream(document(changes(location, **more), name=name), "here")


def of_interval(interval: str | None, name: str = "orders", **sink: Any) -> Stream:
    trigger: dict[str, Any] = {"spec.trigger": {} if interval is None else {"interval": interval}}
    return stream(f"/checkpoints/{name}", name, sink={"labelFormat": "Default", **sink}, **trigger)


@pytest.mark.parametrize(
    ("interval", "told"),
    [
        ("0s", ["a load is forgotten after 0 minutes or sooner"]),
        ("1s", ["a load is forgotten after 33 minutes or sooner"]),
        ("10s", ["with more than 5 partitions per batch a load is forgotten within the hour"]),
        ("14s", ["with more than 7 partitions per batch"]),
        ("15s", []),
        (None, ["without trigger.interval batches follow each other as fast as they land"]),
    ],
)
def test_an_interval_whose_labels_are_forgotten_within_the_hour_is_told(interval: str | None, told: list[str]) -> None:
    found = advice_of(of_interval(interval))
    assert len(found) == len(told)
    assert all(words in sentence for words, sentence in zip(told, found, strict=True))


def test_a_stream_that_ends_by_itself_is_told_nothing_of_labels() -> None:
    completes: dict[str, Any] = {"spec.trigger": {"availableNow": True}}
    ends = stream("/checkpoints/a", sink={"labelFormat": "Default"}, **completes)
    assert advice_of(ends) == ()


def test_streams_that_share_a_database_share_its_labels() -> None:
    one, another = of_interval("20s"), of_interval("20s", "returns", frontends=["fe-2:8030", "fe-1.doris:8030"])
    assert advice_of(one) == ()
    (told,) = advice_of(one, (one, another))
    assert "20 s with those of 1 more streams into this database, so with more than 5 partitions per batch" in told
    for elsewhere in ({"database": "b"}, {"frontends": ["fe-2:8030"]}):
        assert advice_of(one, (one, of_interval("20s", "returns", **elsewhere))) == ()


def test_streams_whose_labels_could_be_the_same_are_told_where_both_load_into_one_database() -> None:
    one = stream("/checkpoints/a-b")
    meets = stream("/checkpoints/a.b", "others")
    elsewhere = stream("/checkpoints/a.b", "elsewhere", sink={"database": "another"})
    default = stream("/checkpoints/a.b", "default", sink={"labelFormat": "Default"})
    postgres = parse_stream(document(name="postgres"), "here")
    (told,) = advice_of(one, (one, meets, elsewhere, default, postgres))
    assert "the same labels of /checkpoints/a-b and of /checkpoints/a.b (stream shop/others)" in told
    assert advice_of(postgres, (one, meets)) == ()


def test_a_location_whose_beginning_is_in_no_label_is_told() -> None:
    (told,) = advice_of(stream(LONG))
    assert "a stream whose checkpoint location ends like it has the same labels" in told


def test_validate_warns_of_streams_that_meet_and_finds_them_valid(tmp_path: Path) -> None:
    documents = [
        document(changes("/checkpoints/a-b")),
        document(changes("/checkpoints/a/b"), name="others"),
    ]
    file = tmp_path / "streams.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    result = CliRunner().invoke(main, ["validate", str(file)])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("is valid.") == 2
    assert result.stderr.count("warning: labelFormat: Compatible makes the same labels") == 2
