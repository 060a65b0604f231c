"""The work of a driver without a query, over a ledger and sinks in memory: Spark is started where rows are made again alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from exactlyonce.errors import Refused
from exactlyonce.launch.last_message import Ending
from exactlyonce.ledger.decided import DecidedBatch, StagedFile
from exactlyonce.ledger.fence import Fenced, claim_epoch, raise_epoch
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.finish_only import SparkWhenNeeded, Unattended, WithSpark, finish_only
from exactlyonce_spark.target import ManifestTarget, Prepared, RecordsOfBatch, TwoPhaseTarget
from exactlyonce_spark.two_phase_finish import DecidedElsewhere
from exactlyonce_spark.two_phase_submit import NoStagedLoads
from tests.ledgers import STREAM, new_stream
from tests.two_phase_stream import ALL, Killed, Watch, World, aborted_by_the_sink, killed_at
from tests.unit.conftest import passed  # noqa: F401 - a fixture


class Sparks:
    """Counts how often Spark is started."""

    def __init__(self, world: World) -> None:
        self.world, self.started = world, 0

    def start(self) -> WithSpark:
        self.started += 1
        return WithSpark(self.world.target(), self.world._run_again)


@pytest.fixture
def world(passed: Watch) -> World:  # noqa: F811 - the fixture
    """A stream whose driver has died over its decided batch, and whose next one has claimed."""
    made = World()
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        made.land()
    raise_epoch(made.ledger, new_stream(made.ledger), Epoch(made.permit.epoch + 1), "ticket")
    epoch = Epoch(made.permit.epoch + 1)
    made.permit = claim_epoch(made.ledger, STREAM, epoch, f"claim-{epoch}", "ticket", writes=False)[0]
    return made


def unattended(world: World, sparks: Sparks, target: ManifestTarget | TwoPhaseTarget | None) -> Unattended:
    return Unattended(world.ledger, world.permit, world.topic, target, SparkWhenNeeded(sparks.start))


def record(world: World, decided: DecidedBatch) -> None:
    with world.ledger.transaction() as transaction:
        transaction.write_decided(STREAM, decided)


def decided_of(world: World) -> DecidedBatch:
    view = world.ledger.view(STREAM)
    assert view is not None
    assert view.decided is not None
    return view.decided


def test_what_is_prepared_is_committed_without_spark_and_the_last_message_says_so(world: World) -> None:
    sparks = Sparks(world)
    words = finish_only(unattended(world, sparks, world.target()))
    assert (words.ending, words.message) == (Ending.FINISHED, "Batch 1, which was decided, has landed.")
    assert (sparks.started, world.visible, world.status()) == (0, ALL, BatchStatus.LANDED)
    assert finish_only(unattended(world, sparks, world.target())).message == "Nothing was left to finish."


def test_rows_that_the_sink_has_aborted_are_made_again_by_one_spark(world: World) -> None:
    sparks = Sparks(world)
    for number in list(world.store.loads):
        aborted_by_the_sink(world, number)
    finish_only(unattended(world, sparks, world.target()))
    assert (sparks.started, world.visible) == (1, ALL)
    assert len(world.read_again) == 2, "one job for each load"


def test_files_that_wait_for_their_statement_are_loaded_by_a_target_that_knows_the_columns(world: World) -> None:
    sparks, decided = Sparks(world), decided_of(world)
    waiting = replace(decided.committables[0], transaction_id="", staged=StagedFile("a.json", "the store"))
    record(world, replace(decided, committables=(waiting,)))
    with pytest.raises(NoStagedLoads):  # the toy has no such loads; but it was asked with Spark
        finish_only(unattended(world, sparks, world.target()))
    assert sparks.started == 1


def test_where_rows_land_with_the_ledger_nothing_may_be_decided(world: World) -> None:
    sparks = Sparks(world)
    with pytest.raises(DecidedElsewhere):
        finish_only(unattended(world, sparks, None))
    world.next_driver()
    assert finish_only(unattended(world, sparks, None)).message == "Nothing was left to finish."


def test_one_that_was_superseded_finishes_nothing(world: World) -> None:
    raise_epoch(world.ledger, new_stream(world.ledger), Epoch(world.permit.epoch + 1), "ticket")
    for target in (world.target(), None, Shown()):
        with pytest.raises(Fenced):
            finish_only(unattended(world, Sparks(world), target))
    assert not world.visible


class Shown(ManifestTarget):
    """A sink that shows what the ledger names."""

    writes = False

    def __init__(self, problem: Refused | None = None) -> None:
        self.problem, self.shown = problem, dict[BatchNumber, str]()

    def prepare(self, batch: BatchNumber, rows: object) -> Prepared:
        raise AssertionError("no row is written")

    def publish(self, batch: BatchNumber, committable: str, records: RecordsOfBatch | None = None) -> None:
        raise AssertionError("no batch lands")

    def recover(
        self, committables: Mapping[BatchNumber, str], landed: BatchNumber | None, records: RecordsOfBatch | None = None
    ) -> None:
        if self.problem is not None:
            raise self.problem
        self.shown.update(committables)


def test_readers_are_shown_what_has_landed_or_the_driver_says_why_not(world: World) -> None:
    sink = Shown()
    assert finish_only(unattended(world, Sparks(world), sink)).message == "Nothing was left to finish."
    with world.ledger.transaction() as transaction:
        transaction.write_committable(STREAM, BatchNumber(1), "files")
    words = finish_only(unattended(world, Sparks(world), sink))
    assert (sink.shown, words.message) == ({1: "files"}, "Readers are shown all that has landed, up to batch 1.")
    with pytest.raises(Refused, match="The folder lacks"):
        finish_only(unattended(world, Sparks(world), Shown(Refused("The folder lacks a file."))))
