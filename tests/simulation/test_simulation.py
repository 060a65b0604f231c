"""The simulation: the real protocol under every interleaving that a seed draws, counted by unique ids."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.specs import Commit
from exactlyonce.reconcile.verdicts import FirstStart
from exactlyonce_spark import landing, tasks
from tests.simulation.beside_world import BesideWorld
from tests.simulation.digests import KINDS, digest_of
from tests.simulation.files_replay_world import FilesReplayLogWorld, FilesReplayWorld
from tests.simulation.folder_world import FolderWorld
from tests.simulation.full_log_world import FullLogWorld
from tests.simulation.give_up_world import GiveUpWorld
from tests.simulation.kafka_world import KafkaWorld
from tests.simulation.kinesis_world import KinesisWorld
from tests.simulation.letters_world import LettersWorld
from tests.simulation.loads_replay_world import LoadsReplayLogWorld, LoadsReplayWorld
from tests.simulation.log_world import LogWorld
from tests.simulation.manifest_log_world import ManifestLogWorld
from tests.simulation.mutation_table import rows, seeds, spoken, taken_away
from tests.simulation.mutations import HARMLESS, MUTATIONS, OF_SHARED_LABELS, OF_STAGED_LOADS, OF_TWO_PHASES
from tests.simulation.oracle import Broken, run_seed
from tests.simulation.replay_world import ReplayWorld
from tests.simulation.scenario import Scenario
from tests.simulation.search import (
    CHUNK,
    FOCUS,
    SEEDS_TO_FIND_A_MUTATION,
    Found,
    first_that_finds,
    first_that_goes_wrong,
    found_by,
    kind_of_world,
    violations_in,
    workers,
)
from tests.simulation.seeds_that_went_wrong import SEEDS_THAT_WENT_WRONG
from tests.simulation.shared_labels import SharedLabelsWorld
from tests.simulation.snapshot_world import SnapshotWorld
from tests.simulation.spark_batch import TASK_TRIES
from tests.simulation.staged_world import StagedLogWorld, StagedWorld
from tests.simulation.table_replay_world import SnapshotReplayWorld, TableReplayWorld
from tests.simulation.table_world import TableWorld
from tests.simulation.two_phase_world import TwoPhaseLogWorld, TwoPhaseWorld
from tests.simulation.world import SimulatedWorld
from tests.simulation.worlds import SUITES, mutations_of_suites, suite_of_world
from tests.suites import CORE, of_suite

SEEDS = int(os.environ.get("SEEDS", "6000"))
FIRST_SEED = int(os.environ.get("FIRST_SEED", "0"))
SEEDS_OF_OBJECT_LOGS = max(1, int(os.environ.get("LOG_SEEDS", SEEDS // 25)))
"""A world whose ledger is an object log takes five times as long; 10,000 of them: `make test-full`, or LOG_SEEDS=10000."""

SEEDS_OF_FILES_OVER_LOGS = max(1, int(os.environ.get("FILES_SEEDS", SEEDS // 150)))
"""With a sink of files beside it, a world takes ten times as long: more batches have to land before files can be merged."""

SEEDS_OF_TABLES = max(1, int(os.environ.get("TABLE_SEEDS", SEEDS // 60)))
"""Each of these worlds has a sink with a log of its own, which only they have."""

SEEDS_OF_KINESIS = max(1, int(os.environ.get("KINESIS_SEEDS", SEEDS // 40)))
"""A world whose source is a Kinesis stream takes eight times as long, as each call of Kinesis is a step."""

SEEDS_OF_FOLDERS = max(1, int(os.environ.get("FOLDER_SEEDS", SEEDS // 40)))
"""Each of these worlds has a folder for a source, with lists of what was read."""

SEEDS_OF_REPLAYS = max(1, int(os.environ.get("REPLAY_SEEDS", SEEDS // 40)))
"""Each of these worlds has replays beside the stream, of what is in quarantine or of dead letters."""

SEEDS_OF_TWO_PHASES = max(1, int(os.environ.get("TWO_PHASE_SEEDS", SEEDS // 150)))
"""A world whose sink takes loads in two phases takes fifteen times as long, and with an object log five times that."""

SEEDS_OF_KAFKA = max(1, int(os.environ.get("KAFKA_SEEDS", SEEDS // 15)))
"""Each of these worlds has a topic for a sink, which its ledger goes back behind in most."""

SEEDS_OF_A_HARMLESS_CHANGE = 1000
SEEDS_OF_A_SCENARIO = 50
SEEDS_OF_LETTERS_THAT_WENT_WRONG = (373, 616, 676, 1198)
"""The same of a world of dead letters: a letter of a record that a truncation put another one in the place of, and retention
between what a person asked for and the commit that did it."""

SEEDS_OF: Mapping[type[SimulatedWorld], int] = {
    SimulatedWorld: SEEDS,
    LogWorld: SEEDS_OF_OBJECT_LOGS,
    FullLogWorld: max(1, SEEDS_OF_OBJECT_LOGS // 2),
    ManifestLogWorld: SEEDS_OF_FILES_OVER_LOGS,
    TableWorld: SEEDS_OF_TABLES,
    SnapshotWorld: SEEDS_OF_TABLES,
    KinesisWorld: SEEDS_OF_KINESIS,
    FolderWorld: SEEDS_OF_FOLDERS,
    ReplayWorld: SEEDS_OF_REPLAYS,
    FilesReplayWorld: SEEDS_OF_REPLAYS // 3,
    FilesReplayLogWorld: max(1, SEEDS_OF_REPLAYS // 15),
    LoadsReplayWorld: SEEDS_OF_REPLAYS // 3,
    LoadsReplayLogWorld: max(1, SEEDS_OF_REPLAYS // 15),
    TableReplayWorld: max(1, SEEDS_OF_REPLAYS // 6),
    SnapshotReplayWorld: max(1, SEEDS_OF_REPLAYS // 12),
    LettersWorld: SEEDS_OF_REPLAYS,
    BesideWorld: SEEDS_OF_REPLAYS // 2,
    GiveUpWorld: max(1, SEEDS_OF_REPLAYS // 3),
    TwoPhaseWorld: SEEDS_OF_TWO_PHASES,
    TwoPhaseLogWorld: max(1, SEEDS_OF_TWO_PHASES // 5),
    KafkaWorld: SEEDS_OF_KAFKA,
    SharedLabelsWorld: max(1, SEEDS_OF_TWO_PHASES // 2),
    StagedWorld: SEEDS_OF_TWO_PHASES,
    StagedLogWorld: max(1, SEEDS_OF_TWO_PHASES // 5),
}
"""How many seeds of each kind of world are run."""


def parts(kind: type[SimulatedWorld], seeds: int) -> list[Any]:
    """Return the first third of the seeds as of the suite `core`, and the others as of the suite of the world."""
    until, sampled = FIRST_SEED + seeds, FIRST_SEED + seeds // 3
    spans = ((CORE, FIRST_SEED, sampled), (suite_of_world(kind), sampled, until))
    return [pytest.param(kind, first, end, marks=of_suite(suite)) for suite, first, end in spans if first < end]


Search = Callable[[str], Found | None]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with workers() as processes:
        yield processes
        processes.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def tried(pool: ProcessPoolExecutor, request: pytest.FixtureRequest) -> Search:
    """Begin to try the seed of ADR 6 with all mutations that are asked for, so that no core waits for the test before."""
    known = seeds()
    pending = {name: pool.submit(found_by, name, known.get(name)) for name in asked(request, "mutation")}
    return lambda name: pending[name].result()


@pytest.fixture(scope="module")
def searched(pool: ProcessPoolExecutor, request: pytest.FixtureRequest) -> Search:
    """Begin to search with all mutations that are asked for."""
    known = seeds()
    pending: dict[str, Future[Found | None]] = {
        name: pool.submit(
            first_that_finds,
            name,
            SEEDS_TO_FIND_A_MUTATION if name in MUTATIONS else SEEDS_OF_A_HARMLESS_CHANGE,
            known.get(name),
        )
        for name in asked(request, "name")
    }
    return lambda name: pending[name].result()


def asked(request: pytest.FixtureRequest, parameter: str) -> list[str]:
    """Return what the tests of this run have as this parameter."""
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    return [params[parameter] for params in parameters if parameter in params]


@pytest.mark.timeout(
    1800
    + SEEDS
    + 10 * (SEEDS_OF_OBJECT_LOGS + SEEDS_OF_FILES_OVER_LOGS)
    + 10 * SEEDS_OF_KINESIS
    + 10 * SEEDS_OF_TWO_PHASES
)  # as many as were asked for
@pytest.mark.parametrize(
    ("kind", "first", "until"), [part for kind, seeds in SEEDS_OF.items() for part in parts(kind, seeds)]
)
def test_no_seed_loses_or_doubles_a_record(
    pool: ProcessPoolExecutor, kind: type[SimulatedWorld], first: int, until: int
) -> None:
    chunk = min(CHUNK, max(1, (until - first) // 10))
    starts = range(first, until, chunk)
    chunks = pool.map(violations_in, starts, [min(start + chunk, until) for start in starts], [kind] * len(starts))
    found = [problem for chunk in chunks for problem in chunk]
    assert not found, (
        f"{len(found)} of {until - first} seeds went wrong: {[problem.seed for problem in found[:20]]}; the first:\n"
        f"{found[0].words}\n"
        f"Again: FIRST_SEED={found[0].seed} SEEDS=1 make test-simulation"
    )


@pytest.mark.parametrize("seed", SEEDS_THAT_WENT_WRONG)
def test_a_seed_that_once_went_wrong_goes_right(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("seed", SEEDS_OF_LETTERS_THAT_WENT_WRONG)
def test_a_seed_of_dead_letters_that_once_went_wrong_goes_right(seed: int) -> None:
    run_seed(seed, kind=LettersWorld)


def test_a_driver_that_starts_as_its_topic_is_recreated_does_not_wait_for_the_records_of_the_former_one() -> None:
    run_seed(9965, kind=LogWorld)


def test_a_raised_epoch_is_not_called_unknown_for_a_list_that_hides_the_entry_after_it_and_shows_its_snapshot() -> None:
    run_seed(8050, kind=LogWorld)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_run_every_time(kind: type[SimulatedWorld]) -> None:
    assert run_seed(7, kind=kind).simulation.trace == run_seed(7, kind=kind).simulation.trace


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_runs_a_seed_as_any_other_process_does(pool: ProcessPoolExecutor, kind: type[SimulatedWorld]) -> None:
    """Its dataclasses are not frozen, so that building them is cheap."""
    assert pool.submit(digest_of, kind, 7).result() == digest_of(kind, 7)


def test_a_seed_gives_the_same_run_whatever_order_sets_have() -> None:
    """Each process has its own order of sets of texts, and a seed that went wrong in one has to go wrong in all."""
    runs = [
        subprocess.run(
            [sys.executable, "-m", "tests.simulation.digests"],
            env={**os.environ, "PYTHONHASHSEED": order},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout.splitlines()
        for order in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0]) == len(set(runs[0])) > len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_in_which_nothing_strikes_has_one_attempt_and_a_first_start(kind: type[SimulatedWorld]) -> None:
    for seed in range(20):
        scenario = replace(Scenario.draw(random.Random(seed)), hazards=frozenset(), operators=1)
        world = run_seed(seed, scenario, kind)
        assert [attempt.number for attempt in world.journal.attempts] == [1]
        assert [type(attempt.decision.verdict) for attempt in world.journal.attempts if attempt.decision] == [
            FirstStart
        ]


def test_the_table_of_adr_6_names_every_mutation_with_what_it_takes_away() -> None:
    found = {name: told for name, (told, _) in rows().items()}
    assert found == {spoken(name): taken_away(name) for name in MUTATIONS}, (
        "regenerate it: python -m tests.simulation.mutation_table"
    )
    assert len(MUTATIONS) >= 30


def test_code_that_does_not_fit_what_it_calls_counts_as_broken_and_not_as_found_also_in_a_task() -> None:
    land, most_partitions = landing.land_partition, 3
    left = iter(range(most_partitions * TASK_TRIES))

    def lands_in_the_end(*arguments: Any) -> Any:
        if next(left, None) is not None:
            raise TypeError("it takes another number of arguments")
        return land(*arguments)

    drawn = Scenario.draw(random.Random(0)).delivered(Delivery.EXACTLY_ONCE)
    by_partition = replace(drawn, commit=Commit.PARTITION, small_batches=False, hazards=frozenset(), operators=1)
    with mock.patch.object(tasks, "land_partition", lands_in_the_end), pytest.raises(Broken, match="another number"):
        run_seed(0, by_partition)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_seed_that_adr_6_names_finds_what_breaks_without(mutation: str, tried: Search) -> None:
    if tried(mutation) is None:
        suite = suite_of_world(kind_of_world(mutation))
        pytest.skip(f"The seed is old: `make test-connectors NAME={suite}` searches for {mutation} among all seeds.")


@pytest.mark.parametrize("name", mutations_of_suites(MUTATIONS))
def test_the_simulation_finds_what_breaks_without(name: str, searched: Search) -> None:
    found = searched(name)
    assert found is not None, f"{SEEDS_TO_FIND_A_MUTATION} seeds did not notice: {MUTATIONS[name].__doc__}"
    if found.seed != seeds().get(name):
        warnings.warn(
            f"docs/adr/0006 names another seed than {found.seed} for {spoken(name)!r}: "
            f"python -m tests.simulation.mutation_table {name}",
            stacklevel=1,
        )


@pytest.mark.parametrize("suite", [pytest.param(suite, marks=of_suite(suite)) for suite in SUITES])
def test_where_mutations_are_searched_for_nothing_goes_wrong_without_them(
    pool: ProcessPoolExecutor, suite: str
) -> None:
    """All of these scenarios at once, each of them once, so that no core waits for the one before."""
    focused = sorted({focus: name for name, focus in FOCUS.items()}.values())
    names = [name for name in focused if suite_of_world(kind_of_world(name)) == suite]
    seeds = [
        SEEDS_OF_A_SCENARIO // (5 if name in OF_TWO_PHASES | OF_SHARED_LABELS | OF_STAGED_LOADS else 1)
        for name in names
    ]
    found = dict(zip(names, pool.map(first_that_goes_wrong, names, seeds), strict=True))
    assert found == dict.fromkeys(names)


@pytest.mark.parametrize("name", mutations_of_suites(HARMLESS))
def test_what_a_mutation_takes_away_beside_its_rule_breaks_nothing_alone(name: str, searched: Search) -> None:
    found = searched(name)
    assert found is None, found
