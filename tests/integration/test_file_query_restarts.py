"""What Spark 4.2.0 does when it is started on each state of its own file source and file sink, and what readers see.

docs/checkpoint-states.md and `exactlyonce inspect` tell the same; one JVM serves all states. By default it starts the few that
tell the most; tests/unit/test_inspect_file_queries.py holds the command to the expectations that are proven here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.inspect.checkpoint import read_checkpoint
from exactlyonce.inspect.compare import AnotherQuery, SinkAhead, compare
from exactlyonce.inspect.file_log import read_log
from exactlyonce.inspect.gather import facts_of
from exactlyonce.inspect.output import FOLDER, read_output
from scripts.make_golden_file_queries import write_source
from testbed.file_query import Told, run_jobs
from tests.combinations import in_full, only_in_full
from tests.file_queries import made, states
from tests.inspected import FAILS, READERS_FAIL, RESTARTS, WRITERS_FAIL

STARTED = in_full(states(), ["planned", "dropped"])
UNTIL_COMPACTION = 7
"""As many batches follow as take each query from batch 13 to the compaction at 19."""

NEW_FIRST = 40
"""The number of the first new file: no golden folder has read it."""


def started(told: Mapping[str, str]) -> list[Any]:
    """Return the states of which it is told, each started or marked as one that only test-full starts."""
    return [pytest.param(state, marks=() if state in STARTED else only_in_full) for state in states() if state in told]


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Told, Told, Told]]:
    """Return of each state its folder, what readers saw before, what became of a restart, and what readers saw after."""
    folder = tmp_path_factory.mktemp("states")
    jobs: list[tuple[str | Path, ...]] = []
    folders = {}
    for state in STARTED:
        folders[state] = target = made(state, folder)
        write_source(target / "source", NEW_FIRST, UNTIL_COMPACTION)
        sources = [target / name for name in ("source", "other-source") if (target / name).exists()]
        if state == "two-sources":
            (target / "other-source").mkdir(exist_ok=True)
            sources = [target / "source", target / "other-source"]
        kind = "stateful" if state == "stateful" else "plain"
        read = ("read", target / "output")
        jobs += [read, (kind, target / "checkpoint", target / "output", *sources), read]
    told = run_jobs(jobs, folder / "log")
    places = {state: 3 * at for at, state in enumerate(STARTED)}
    return {state: (folders[state], told[at], told[at + 1], told[at + 2]) for state, at in places.items()}


def first_batch(told: Told) -> int:
    return int(told.found.split()[0].partition(":")[0])


def ids(told: Told) -> list[int]:
    return [int(found) for found in told.found.split()]


@pytest.mark.parametrize("state", [state for state in STARTED if state in RESTARTS and state != "dropped"])
def test_the_first_batch_is_the_one_that_is_told(
    restarted: dict[str, tuple[Path, Told, Told, Told]], state: str
) -> None:
    _, _, ran, _ = restarted[state]
    # A batch that the sink has already reads nothing, so the first one that does is the one after it.
    assert first_batch(ran) == RESTARTS[state][1] + (state == "written")


@pytest.mark.parametrize("state", started(FAILS))
def test_a_restart_fails_with_the_error_that_is_told_and_runs_nothing(
    restarted: dict[str, tuple[Path, Told, Told, Told]], state: str
) -> None:
    _, before, ran, after = restarted[state]
    assert FAILS[state] in (ran.error or "it did not fail")
    assert (ran.found, after) == ("", before)


@pytest.mark.parametrize("state", started(READERS_FAIL))
def test_readers_fail_where_it_is_told(restarted: dict[str, tuple[Path, Told, Told, Told]], state: str) -> None:
    _, before, _, after = restarted[state]
    for told in (before, after):
        assert READERS_FAIL[state] in (told.error or "it did not fail")


@pytest.mark.parametrize("state", started(WRITERS_FAIL))
def test_a_query_continues_until_it_puts_its_sinks_log_together(
    restarted: dict[str, tuple[Path, Told, Told, Told]], state: str
) -> None:
    _, _, ran, after = restarted[state]
    assert WRITERS_FAIL[state] in (ran.error or "it did not fail")
    assert ran.found.split()[-1].startswith("18:"), "the last batch before the compaction at 19"
    assert after.error is not None, "and readers fail, too"


@pytest.mark.skipif("dropped" not in STARTED, reason="not started")
def test_the_batches_that_are_said_to_be_dropped_are_dropped(
    restarted: dict[str, tuple[Path, Told, Told, Told]],
) -> None:
    """Seven new files are batches 3 to 9, all of which stand in the log: no record of theirs reaches a reader."""
    _, before, ran, after = restarted["dropped"]
    assert ran.error is None, "and Spark says nothing"
    assert ids(after) == ids(before) == list(range(13))


@pytest.mark.skipif("planned" not in STARTED, reason="not started")
def test_a_batch_with_part_files_and_no_entry_is_written_once(
    restarted: dict[str, tuple[Path, Told, Told, Told]],
) -> None:
    _, before, _, after = restarted["planned"]
    assert ids(before) == list(range(12)), "its first try is not seen"
    assert ids(after) == [*range(13), *range(NEW_FIRST, NEW_FIRST + UNTIL_COMPACTION)]


@pytest.mark.parametrize("state", [state for state in STARTED if state in ("planned", "equal", "written", "listed")])
def test_what_spark_writes_after_it_is_read_again(
    restarted: dict[str, tuple[Path, Told, Told, Told]], state: str
) -> None:
    folder = restarted[state][0]
    found = facts_of(LocalLogStore(str(folder / "output")), 10).output
    assert found is not None
    output = read_output(found)
    checkpoint = facts_of(LocalLogStore(str(folder / "checkpoint")), 10).checkpoint
    assert checkpoint is not None
    assert not output.log.damage
    assert not isinstance(compare(read_checkpoint(checkpoint), output), SinkAhead | AnotherQuery)
    assert read_log(FOLDER, found.log).latest == read_checkpoint(checkpoint).latest_committed
