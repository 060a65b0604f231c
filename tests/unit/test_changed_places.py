"""The sink's table, the ledger and the checkpoint's location may be changed while a stream is suspended, two at a time.

Each pair of what may be changed (`api/immutable.py`), delivery and commit among it, with the first driver killed at every point
of its batch: a stream whose ledger is another one is refused by name, and continues once it has its ledger back. Every other
one continues where its ledger stands, with each record in the tables as often as its deliveries allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from itertools import combinations
from typing import Any, Protocol

import pytest

from exactlyonce.api.immutable import WHILE_SUSPENDED
from exactlyonce.api.status import Phase
from exactlyonce.connectors.specs import Commit
from exactlyonce.positions.ranges import Positions
from exactlyonce.reconcile.pass_context import Halted, Watching
from exactlyonce.reconcile.verdicts import ContradictionReason
from tests.combinations import in_full
from tests.simulation.database import Hooks, MemoryDatabase, MemoryLedger
from tests.simulation.files import MemoryStore
from tests.unit.passes import Machine
from tests.unit.test_changed_delivery import MODES, PLACES, RECORDS, Mode, assert_kept, drive, killed_at


class Change(Protocol):
    """What a person changes while the stream is suspended."""

    __name__: str

    def __call__(self, machine: Machine) -> None: ...


def the_table(machine: Machine) -> None:
    """Rows go to another table, whose rows are counted with the former one's."""
    sink = machine.spec["sink"]["postgres"]
    machine.spec = {**machine.spec, "sink": {"postgres": {**sink, "table": "orders_2"}}}


def the_checkpoint(machine: Machine) -> None:
    """The checkpoint is in an empty folder."""
    machine.store = MemoryStore(machine._step)
    machine.store.location = "/checkpoints/elsewhere"


def the_ledger(machine: Machine) -> None:
    """The ledger is an empty schema of the same database, which is where a stream to Postgres has it."""
    sink = machine.spec["sink"]["postgres"]
    machine.spec = {**machine.spec, "sink": {"postgres": {**sink, "ledgerSchema": "elsewhere"}}}
    database = MemoryDatabase(Hooks(machine._database_step))
    database.identity = machine.database.identity
    database.tables.target = Counter(machine.database.tables.target)
    machine.database, machine.ledger = database, MemoryLedger(database)


PLACE_CHANGES: tuple[Change, ...] = (the_table, the_checkpoint, the_ledger)


def changed(machine: Machine, mode: Mode, changes: tuple[Change, ...]) -> None:
    mode.request(machine)
    for change in changes:
        change(machine)


def landed_whole(machine: Machine, mode: Mode) -> None:
    """Run the stream until all that there is, and as many records again, has landed."""
    attempt = machine.run_until_a_driver_runs()
    drive(machine, attempt, mode)
    machine.topic.ends = {key: end + RECORDS for key, end in machine.topic.ends.items()}
    machine.end(attempt)
    machine.run_pass()
    drive(machine, machine.run_until_a_driver_runs(), mode)
    assert machine.view().landed.positions == Positions(machine.topic.ends)


def pairs(before: Mode) -> list[tuple[Mode, tuple[Change, ...]]]:
    """Each place with each other setting, and each two places."""
    with_settings = [(after, (change,)) for after in MODES for change in PLACE_CHANGES]
    return [*with_settings, *((before, two) for two in combinations(PLACE_CHANGES, 2))]


RUN = in_full(PLACES, [it for it in PLACES if it[0].commit is Commit.PARTITION] + PLACES[::3])
"""Every point with EVERY_MODE=1. `make test` has all at which a part of a batch has landed, and a third of the others, at each
of which test_changed_delivery.py kills."""


def cases(*, ledger_moves: bool) -> list[Any]:
    """The cases in which the ledger is changed, or those in which it stays."""
    return [
        pytest.param(before, place, after, changes, id=f"{before}, {place} {point}; {after}, {names_of(changes)}")
        for before, place, point in dict.fromkeys(RUN)
        for after, changes in pairs(before)
        if (the_ledger in changes) is ledger_moves
    ]


def names_of(changes: tuple[Change, ...]) -> str:
    return " and ".join(change.__name__ for change in changes)


@pytest.mark.parametrize(("before", "place", "after", "changes"), cases(ledger_moves=False))
def test_a_stream_with_its_ledger_continues_wherever_table_and_checkpoint_are(
    before: Mode, place: int, after: Mode, changes: tuple[Change, ...]
) -> None:
    machine = killed_at(before, place)
    changed(machine, after, changes)
    landed_whole(machine, after)
    assert_kept(machine, before, after, f"{machine.reports}")


@pytest.mark.parametrize(("before", "place", "after", "changes"), cases(ledger_moves=True))
def test_a_stream_without_its_ledger_is_refused_by_name_and_continues_once_it_is_back(
    before: Mode, place: int, after: Mode, changes: tuple[Change, ...]
) -> None:
    machine = killed_at(before, place)
    spec, store, database, ledger = machine.spec, machine.store, machine.database, machine.ledger
    rows: Counter[Hashable] = Counter(database.tables.target)

    changed(machine, after, changes)
    results = [machine.run_pass() for _ in range(3)]

    assert isinstance(results[-1], Halted), f"{results} {machine.reports}"
    assert not any(isinstance(result, Watching) for result in results)
    assert machine.statuses.status.verdict is not None
    assert machine.statuses.status.verdict.reason in NAMED
    assert machine.database.tables.target == rows
    assert machine.view().stream.landed_batch is None

    machine.spec, machine.store, machine.database, machine.ledger = spec, store, database, ledger
    # As for each changed resource (control/stream_pass.py): what it was halted for has been acted on.
    machine.statuses.status = machine.statuses.status.model_copy(update={"phase": Phase.PENDING})
    landed_whole(machine, before)
    assert_kept(machine, before, before, f"{machine.reports}")


NAMED = {
    ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
    ContradictionReason.LEDGER_LOST,
}


def test_these_are_all_that_may_be_changed() -> None:
    assert set(WHILE_SUSPENDED) == {"spec.delivery", "spec.sink", "spec.checkpoint", "spec.ledger"}
