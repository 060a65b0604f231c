"""A stream of a cluster whose sink has two phases, as the API server has it after the operator's own passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from exactlyonce.api.conditions import rendered
from exactlyonce.api.status import ConsecutiveFailures, Phase
from exactlyonce.errors import Refused
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.port import Ended
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce.reconcile.loop import Halted
from exactlyonce_spark.two_phase_finish import _doubt
from exactlyonce_spark.two_phase_submit import RowsPartlyLoaded, _as_mended
from tests.resource_documents import DORIS, document
from tests.unit.passes import FIRST, KEYS, ME, STREAM, Machine

A, B = "exactlyonce:shop_orders:0:1:1:0-a", "s3a_bucket_orders_1_1#72"
FIRST_BATCH = BatchNumber(1)
LOADS = (
    Committable(A, "71", 40, Ranges({KEYS[0]: OffsetRange(0, 40)})),
    Committable(B.partition("#")[0], "72", 30, Ranges({KEYS[1]: OffsetRange(0, 30)}), shares_label=True),
)


def many_loads(count: int) -> tuple[Committable, ...]:
    """Return so many loads, named load-0 and so on."""
    return tuple(replace(LOADS[0], label=f"load-{number}") for number in range(count))


def running() -> Machine:
    """Return a world whose first driver runs; its sink is Doris."""
    machine = Machine()
    machine.spec = {"sink": {"doris": DORIS}}
    assert machine.run_until_a_driver_runs() == FIRST
    machine.run_pass()
    return machine


def decide(machine: Machine, loads: tuple[Committable, ...] = LOADS) -> None:
    """Let the first driver decide batch 1."""
    machine.land(FIRST, 40, 30, known_to_spark=False)
    rows, row = machine.database.tables.rows, ("batch", STREAM, FIRST_BATCH)
    rows[row] = replace(rows[row], status=BatchStatus.DECIDED)
    record(machine, loads)


def record(machine: Machine, loads: tuple[Committable, ...]) -> None:
    """Write down the loads that are left of the decided batch."""
    machine.database.tables.rows["decided", STREAM] = DecidedBatch(FIRST_BATCH, loads)


def halt(machine: Machine, attempt: Epoch, problem: Refused) -> None:
    """Let a driver end with what it refuses, and the operator halt the stream."""
    words = LastMessage(Ending.REFUSED, str(problem), case=type(problem).__name__)
    machine.drivers.states[attempt] = Ended("the process is gone", words, "it ended")
    assert isinstance(machine.run_pass(), Halted)


def in_doubt(loads: tuple[Committable, ...] = LOADS) -> Machine:
    """Return a stream that halted with LoadsInDoubt: its second driver was started to finish the batch."""
    machine = running()
    decide(machine, loads)
    machine.end(FIRST)
    machine.run_pass()
    second = machine.run_until_a_driver_runs()
    machine.run_pass()
    halt(machine, second, _doubt(FIRST_BATCH, loads, ""))
    return machine


def partly_loaded(load: Committable = LOADS[0]) -> Machine:
    """Return a stream that halted with RowsPartlyLoaded while its first driver ran: the verdict is older than the batch."""
    machine = running()
    decide(machine)
    try:
        _as_mended(load, 4)
    except RowsPartlyLoaded as problem:
        record(machine, problem.loads)
        halt(machine, FIRST, problem)
    return machine


def start_over(machine: Machine) -> None:
    """Do what the operator does with a halted stream whose annotation a person has changed."""
    known = machine.statuses.status
    machine.statuses.status = known.model_copy(
        update={"phase": Phase.PENDING, "consecutive_failures": ConsecutiveFailures()}
    )


def resource_of(machine: Machine, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the resource with its status as the operator stores it."""
    made = document({"spec.sink": {"doris": DORIS}, "metadata.annotations": annotations or {}})
    made["metadata"] |= {"uid": ME.uid, "resourceVersion": "4", "generation": 1}
    made["status"] = rendered(machine.statuses.status, made, machine.now)
    return made
