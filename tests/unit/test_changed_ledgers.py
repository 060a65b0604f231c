"""A suspended stream is moved to another ledger, of the same kind or another, whatever its last driver left behind.

Each pair of places in which a resource may have its ledger: a schema of the sink's database or of another one, the folder of
an object log, and the folder beside the checkpoint. No ledger is ever copied: the stream halts before
anything is written, names the way back and the way on, and continues where it stood once it has its ledger again. The one exact
move is that to the same log by another name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.api.ledger import LEDGER_FOLDER
from exactlyonce.api.resource import ADOPT
from exactlyonce.api.status import Phase
from exactlyonce.assembly import ledger_address
from exactlyonce.checkpoint import files
from exactlyonce.checkpoint.generation import read_marker
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.connectors.registry import LEDGERS
from exactlyonce.launch.port import Gone
from exactlyonce.ledger.port import Ledger
from exactlyonce.positions.ranges import Epoch, Positions
from exactlyonce.reconcile.pass_context import Halted, Watching
from exactlyonce.schema.model import field_name
from tests.combinations import in_full
from tests.object_logs import ledger_on
from tests.simulation.database import Hooks, MemoryDatabase, MemoryLedger
from tests.simulation.objects import MemoryObjects
from tests.unit.passes import FIRST, Died, Machine

OTHER_SINK = {"files": {"path": "/out"}}


@dataclass(frozen=True)
class Place:
    """Where a resource has its ledger, and how a process opens what is there."""

    name: str
    spec: Callable[[Path], dict[str, Any]]
    opens: Callable[[Machine], Ledger]

    def use(self, machine: Machine, opened: dict[str, Ledger], folder: Path) -> None:
        """Change the resource. What has been opened once is there again."""
        machine.spec = self.spec(folder)
        if self.name not in opened:
            opened[self.name] = self.opens(machine)
        machine.ledger = opened[self.name]  # type: ignore[assignment] # the passes ask for no more than a ledger


def another_schema(machine: Machine) -> Ledger:
    database = MemoryDatabase(Hooks(machine._database_step))
    database.identity = machine.database.identity
    return MemoryLedger(database)


def in_sink(name: str) -> Place:
    sink = {"postgres": {"secretRef": {"name": "warehouse"}, "table": "orders", "ledgerSchema": name}}
    return Place(f"sink {name}", lambda folder: {"sink": sink}, another_schema)


def in_database(name: str) -> Place:
    given = {"postgres": {"secretRef": {"name": "warehouse"}, "schema": name}}
    return Place(f"postgres {name}", lambda folder: {"sink": OTHER_SINK, "ledger": given}, another_schema)


def in_folder(name: str) -> Place:
    return Place(
        f"objectLog {name}",
        lambda folder: {"sink": OTHER_SINK, "ledger": {"objectLog": {"location": str(folder / name)}}},
        lambda machine: ledger_on(MemoryObjects()),
    )


BESIDE = Place("beside the checkpoint", lambda folder: {"sink": OTHER_SINK}, lambda machine: ledger_on(MemoryObjects()))

PLACES = [
    *(in_sink(name) for name in ("a", "b")),
    *(in_folder(name) for name in ("x", "y")),
    BESIDE,
    *(in_database(name) for name in ("c", "d")),
]


def left_planned(machine: Machine) -> None:
    """A batch is in the offset log and nowhere else."""
    machine.land(FIRST, 40, 30)
    plan(machine)


def left_landed(machine: Machine) -> None:
    """A batch has landed, and Spark does not know."""
    machine.land(FIRST, 40, 30, known_to_spark=False)


def left_checkpointed(machine: Machine) -> None:
    """Ledger and checkpoint agree."""
    machine.land(FIRST, 40, 30)


def left_first_planned(machine: Machine) -> None:
    """The first batch of all is planned."""
    plan(machine)


LEFT = [left_planned, left_landed, left_checkpointed, left_first_planned]


def plan(machine: Machine) -> None:
    folder = (machine.view().stream.checkpoint_path or "").rsplit("/", 1)[-1]
    number = (machine.view().stream.landed_batch or 0) + 1
    machine.store.files[f"{folder}/commits/{number - 1}"] = files.render_commit()
    end = Positions(dict.fromkeys(machine.keys, 70))
    machine.store.files[f"{folder}/offsets/{number}"] = files.render_offsets(CODEC.render_entry(end), 8)


def suspended_in(place: Place, left: Callable[[Machine], None], folder: Path) -> tuple[Machine, dict[str, Ledger]]:
    machine = Machine()
    machine.store.location = str(folder / "checkpoint")
    opened: dict[str, Ledger] = {}
    place.use(machine, opened, folder)
    assert machine.run_until_a_driver_runs() == FIRST
    left(machine)
    machine.end(FIRST)
    machine.run_pass()
    machine.reports.clear()
    return machine, opened


def asked_again(machine: Machine) -> None:
    """As for each changed resource (control/stream_pass.py): what it was halted for has been acted on."""
    machine.statuses.status = machine.statuses.status.model_copy(update={"phase": Phase.PENDING})


def continues_from(machine: Machine, stood: tuple[int, ...]) -> None:
    attempt = machine.run_until_a_driver_runs()
    assert machine.stands() == stood
    machine.land(attempt, 100, 100)
    assert machine.stands() == (100, 100)


PAIRS = [
    pytest.param(former, other, left, id=f"{former.name} to {other.name}, {left.__name__}")
    for place, (former, other) in enumerate(permutations(PLACES, 2))
    for left in in_full(LEFT, [LEFT[place % len(LEFT)]])
]
"""What was left matters to the ledger alone, which nobody asks: `make test` has each pair with one of them."""


def moved(machine: Machine, opened: dict[str, Ledger], other: Place, folder: Path) -> Halted:
    """Change the resource, and return how the stream halts, before anything is written where its checkpoint is."""
    checkpoint = dict(machine.store.files)
    other.use(machine, opened, folder)
    asked_again(machine)
    results = [machine.run_pass() for _ in range(3)]
    halted = results[-1]
    assert isinstance(halted, Halted), machine.reports
    assert not any(isinstance(result, Watching) for result in results)
    assert machine.store.files == checkpoint
    assert machine.view().stream.landed_batch is None
    return halted


@pytest.mark.parametrize(("former", "other", "left"), PAIRS)
def test_a_stream_halts_in_another_ledger_and_continues_in_its_own(
    former: Place, other: Place, left: Callable[[Machine], None], tmp_path: Path
) -> None:
    machine, opened = suspended_in(former, left, tmp_path)
    stood = machine.stands()
    halted = moved(machine, opened, other, tmp_path)
    assert "the ledger was lost or is another one; restore it, or name the former one again" in halted.message

    former.use(machine, opened, tmp_path)
    asked_again(machine)
    continues_from(machine, stood)


ACROSS = [(PLACES[0], PLACES[2]), (PLACES[2], PLACES[0]), (PLACES[0], PLACES[1]), (BESIDE, PLACES[2])]


@pytest.mark.parametrize("left", LEFT, ids=lambda it: it.__name__)
@pytest.mark.parametrize(("former", "other"), ACROSS, ids=lambda it: it.name)
def test_a_stream_is_moved_for_good_by_adopting_its_checkpoint_where_that_tells_all_that_landed(
    former: Place, other: Place, left: Callable[[Machine], None], tmp_path: Path
) -> None:
    """The other ledger begins where the checkpoint ends. Over a half-landed batch nobody can tell, and nothing is begun."""
    machine, opened = suspended_in(former, left, tmp_path)
    stood = machine.stands()
    moved(machine, opened, other, tmp_path)
    marker = read_marker(machine.store)
    assert marker is not None
    machine.annotations = {ADOPT: marker.token}
    asked_again(machine)

    if left is not left_checkpointed:
        halted = [machine.run_pass() for _ in range(3)][-1]
        assert isinstance(halted, Halted)
        assert "cannot be adopted: without its ledger no one knows whether batch" in halted.message
        assert machine.view().stream.landed_batch is None
        return
    continues_from(machine, stood)
    machine.annotations = {}
    machine.end(Epoch(machine.statuses.status.attempt))
    machine.run_pass()

    former.use(machine, opened, tmp_path)
    asked_again(machine)
    halted = [machine.run_pass() for _ in range(3)][-1]
    assert isinstance(halted, Halted), "the former ledger stands where the stream was, and must not land that again"
    assert machine.stands() == stood


def test_a_checkpoint_is_adopted_whose_newest_generation_has_planned_nothing_yet(tmp_path: Path) -> None:
    """The status knows the batch that the generation was published with; no other one ends there."""
    machine, opened = suspended_in(PLACES[0], left_checkpointed, tmp_path)
    asked_again(machine)
    again = machine.run_until_a_driver_runs()
    machine.land(again, 50, 60)
    stood = machine.stands()
    machine.drivers.states[again] = Gone("its node is lost")
    rebuilt = machine.run_until_a_driver_runs()
    assert rebuilt > again
    assert "RebuildFromSink" in {kind for kind, _ in machine.reports}
    machine.end(rebuilt)
    machine.run_pass()
    machine.now += timedelta(hours=1)
    moved(machine, opened, PLACES[1], tmp_path)
    marker = read_marker(machine.store)
    assert marker is not None
    machine.annotations = {ADOPT: marker.token}
    asked_again(machine)
    continues_from(machine, stood)


def whose_node_was_lost(folder: Path) -> tuple[Machine, dict[str, Ledger]]:
    """A stream that has landed one batch, and whose driver may or may not live."""
    machine, opened = Machine(), dict[str, Ledger]()
    machine.store.location = str(folder / "checkpoint")
    PLACES[0].use(machine, opened, folder)
    first = machine.run_until_a_driver_runs()
    machine.land(first, 40, 30)
    machine.drivers.states[first] = Gone("its node is lost")
    machine.effects.clear()
    return machine, opened


def test_a_seed_that_nobody_published_is_not_adopted_though_a_batch_of_its_number_has_landed(tmp_path: Path) -> None:
    """The operator dies before it publishes; the former driver proves dead, and its generation lands a batch of that number."""
    whole, _ = whose_node_was_lost(tmp_path / "whole")
    whole.run_until_a_driver_runs()
    seeded = max(at for at, effect in enumerate(whole.effects) if effect.endswith("/offsets/2"))
    machine, opened = whose_node_was_lost(tmp_path)
    machine.dies_before = seeded + 1
    with pytest.raises(Died):
        machine.run_until_a_driver_runs()
    machine.end(FIRST)
    again = machine.run_until_a_driver_runs()
    machine.land(again, 50, 60)
    stood = machine.stands()
    machine.end(again)
    machine.run_pass()
    machine.now += timedelta(hours=1)
    moved(machine, opened, PLACES[1], tmp_path)
    marker = read_marker(machine.store)
    assert marker is not None
    machine.annotations = {ADOPT: marker.token}
    asked_again(machine)
    continues_from(machine, stood)


@pytest.mark.parametrize("back", [False, True], ids=["named", "left out again"])
@pytest.mark.parametrize("left", LEFT, ids=lambda it: it.__name__)
def test_the_log_beside_the_checkpoint_may_be_named_and_is_the_same_ledger(
    left: Callable[[Machine], None], back: bool, tmp_path: Path
) -> None:
    """Opened as the resource says, from the disk."""
    named = {"objectLog": {"location": str(tmp_path / "checkpoint" / LEDGER_FOLDER)}}
    left_out = Place("left out", lambda folder: {"sink": OTHER_SINK}, on_the_disk)
    given = Place("named", lambda folder: {"sink": OTHER_SINK, "ledger": named}, on_the_disk)
    before, after = (given, left_out) if back else (left_out, given)
    machine, _ = suspended_in(before, left, tmp_path)
    stood = machine.stands()
    after.use(machine, {}, tmp_path)
    asked_again(machine)
    continues_from(machine, stood)


def on_the_disk(machine: Machine) -> Ledger:
    opened = ledger_address(machine.stream.spec, lambda reference: {}).open()
    opened.prepare()
    return opened


def test_every_ledger_that_a_resource_may_name_is_among_the_places() -> None:
    named = {place.name.split()[0] for place in PLACES}
    assert named == {field_name(name) for name in LEDGERS} | {"sink", "beside"}
