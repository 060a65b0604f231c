"""Lint names phrases for which the glossary has a better word, and leaves ordinary sentences alone."""

from __future__ import annotations

import pytest

from scripts.check_words import is_read, problems_in


@pytest.mark.parametrize(
    "line",
    [
        "the stream starts anew",
        "def topic_made_anew() -> None:",
        "The checkpoint cannot be gone on with.",
        "Another number than before drains the driver.",
        "the next attempt is waited for",
        "how it ended is told once a spec is there",
        'world.report("PutOff", reason)',
        "Every process runs in an enclosure",
        "at most 1,000 records a second",
        '"description": "Records a second, the busiest streams."',
        "What was not answered or refused, a second.",
        "class KeptBatch:",
        "class Telling:",
        "def hold(statuses: ResourceStatus) -> bool:",
        "metrics.troubled(problem)",
        "One transaction a batch.",
        "Runs the drivers of one stream, one an attempt.",
        "latest and lag, a partition",
        "def look(self) -> None:",
        "answer = server.ask(question)",
        "    why: str",
        "The driver ends after the batch in hand.",
        "A driver of before leaves the column alone.",
        "Spark goes on with batch 5.",
        "its last words are in the status",
        "Kafka does not answer; nothing was decided, it is tried again.",
        "delivery changes only while the stream rests",
        "streams.yaml:6: this is no YAML (a tab)",
        "class PassStep:",
        "MalformedPosition: if it is no position.",
        "its driver runs on until it ends",
        "Look for these rows: are they there, the load is committed.",
    ],
)
def test_a_phrase_that_has_a_better_word_is_named_with_file_and_line(line: str) -> None:
    (problem,) = problems_in("docs/page.md", f"fine\n{line}\n")

    assert problem.startswith("docs/page.md:2: ")
    assert "; write instead: " in problem


@pytest.mark.parametrize(
    "line",
    [
        "at most 1,000 records per second",
        "Count a pass, by how it ended.",
        "class Holder(Enum):",
        "whether a stream runs on a cluster or on this machine",
        "where there is no position, the stream starts over",
        "it looks at the driver, records an attempt, decides and launches",
        "how many records a batch may span",
        "how many rows a file holds",
        "is known once a batch with records has landed",
        "asked ten times a second",
        "from launch/last_message import LastMessage",
        "there is no table orders",
        "def asked(self) -> bool:  # who is asked, and where to look",
        "starts anew  # words: ok - the name of another library's function",
    ],
)
def test_an_ordinary_sentence_is_left_alone(line: str) -> None:
    assert list(problems_in("docs/page.md", line)) == []


@pytest.mark.parametrize("line", ["unset while there is none", "for streams that name none", "and none is started"])
def test_none_stands_for_no_noun_on_pages_that_users_read(line: str) -> None:
    for page in ("docs/page.md", "crds/definition.yaml", "charts/exactlyonce-operator/values.schema.json"):
        assert len(list(problems_in(page, line))) == 1
    for page in ("docs/adr/0099-a-record.md", "operator/exactlyonce/errors.py"):
        assert list(problems_in(page, line)) == []


@pytest.mark.parametrize("line", ["if none of its topics is left", "manifest: None", "None: nothing is written"])
def test_none_of_something_and_a_value_of_that_name_are_left_alone(line: str) -> None:
    assert list(problems_in("docs/page.md", line)) == []


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("charts/exactlyonce-operator/dashboards/exactlyonce.json", True),
        ("charts/exactlyonce-operator/values.schema.json", True),
        ("docs/glossary.md", False),
        ("tests/golden/pods/driver.yaml", False),
    ],
)
def test_dashboards_and_schemas_are_read_and_what_names_the_words_is_not(name: str, read: bool) -> None:
    assert is_read(name) is read


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("A moment without its time zone is none.", 1),
        ("Whatever a new release fills in is none of what a person wrote.", 1),
        ("None where there is none.", 0),
        ("An answer is none of those that Doris gives.", 0),
    ],
)
def test_code_may_say_that_there_is_none_but_not_that_something_is_none(line: str, count: int) -> None:
    assert len(list(problems_in("operator/exactlyonce/module.py", line))) == count
