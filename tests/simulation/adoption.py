"""The ledger's tables are dropped, the checkpoint and the sink stay; a person adopts the checkpoint where that is possible."""

from __future__ import annotations

import json

from exactlyonce.api.resource import ADOPT
from exactlyonce.api.status import Phase
from exactlyonce.checkpoint.generation import MARKER
from exactlyonce.checkpoint.state import Readable
from exactlyonce.reconcile.verdicts import Contradiction, ContradictionReason
from tests.simulation.world import SimulatedWorld

DROPPED, ADOPTED = "drop ledger", "adopted"


def drop_ledger(world: SimulatedWorld) -> None:
    """Drop the ledger's tables, once in a run, when the stream has landed something; mostly while no batch is in doubt."""
    progress = world.statuses.status.progress
    if DROPPED in world.struck or progress is None or not progress.batch:
        return
    if not world.strikes(DROPPED, 0.02 if _is_in_doubt(world) else 0.3):
        return
    world.database.crash()
    world.database.lose_rows()
    world.struck_by(DROPPED, "the ledger's tables are dropped")


def adopts(world: SimulatedWorld) -> bool:
    """Read the token in `stream.json` and annotate the stream with it, once in a run; whether that was done."""
    wanted = DROPPED in world.struck and not world.annotations and MARKER in world.store.files
    if not wanted or _contradiction(world) is not ContradictionReason.CHECKPOINT_WITHOUT_LEDGER:
        return False
    if any(not operator.ended for operator in world.operators):
        return False
    world.journal.strike(ADOPTED)
    world.simulation.tell("a person adopts the checkpoint")
    world.annotations = ((ADOPT, json.loads(world.store.files[MARKER])["token"]),)
    world.statuses.status = world.statuses.status.model_copy(update={"phase": Phase.PENDING})
    world.statuses.version += 1
    world.draining = False
    world.start_operator("operator of the adoption")
    return True


def wrong_after_adoption(world: SimulatedWorld, *, halted: bool) -> str | None:
    """Return what is wrong at the end of a run whose ledger was dropped.

    Whoever continues has every record of the source in the sink once, those from before the drop included. Whoever halts must
    be in doubt about a batch: one that Spark has planned and not committed.
    """
    counts, topic = world.database.tables.target, world.topic
    if halted:
        last = world.journal.attempts[-1]
        checkpoint = None if last.seen is None else last.seen.checkpoint
        if world.annotations and isinstance(checkpoint, Readable) and checkpoint.planned == checkpoint.checkpointed:
            return f"no batch is in doubt and the adoption was refused: {world.statuses.status.message}"
        return None
    if not world.annotations:
        return "the ledger was dropped and the stream continued although nobody had asked it to"
    expected = {topic.record(key, offset) for key, end in topic.ends.items() for offset in range(end)}
    wrong = {record: counts[record] for record in expected if counts[record] != 1}
    unknown = [record for record in counts if record not in expected and counts[record]]
    return (
        f"after the adoption {wrong} are there so many times, and {unknown} are of no record"
        if wrong or unknown
        else None
    )


def _is_in_doubt(world: SimulatedWorld) -> bool:
    """Whether Spark has planned a batch that it has not committed, in the latest generation."""
    latest = max((path.split("/")[0] for path in world.store.files if "/offsets/" in path), default="")
    numbers = {log: _numbers(world, f"{latest}/{log}/") for log in ("offsets", "commits")}
    return max(numbers["offsets"], default=-1) != max(numbers["commits"], default=-1)


def _numbers(world: SimulatedWorld, folder: str) -> list[int]:
    names = [path.removeprefix(folder) for path in world.store.files if path.startswith(folder)]
    return [int(name) for name in names if name.isdigit()]


def _contradiction(world: SimulatedWorld) -> ContradictionReason | None:
    decision = world.journal.attempts[-1].decision
    if decision is None or not isinstance(decision.verdict, Contradiction):
        return None
    return decision.verdict.reason
