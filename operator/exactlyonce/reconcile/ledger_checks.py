"""Does the ledger agree with itself? Performs no I/O."""

from __future__ import annotations

from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import PARTITION_END, BatchNumber, Positions
from exactlyonce.reconcile.decided import contradicts_its_batches
from exactlyonce.reconcile.verdicts import Contradiction, ContradictionReason, Evidence


def ledger_contradiction(ledger: LedgerView) -> Contradiction | None:
    """The landed batch's row must be there, and every position must be its end or the end of the one in progress.

    A batch may leave out a partition that stands at its end.
    """
    landed_batch = ledger.stream.landed_batch
    assert landed_batch is not None, "a stream that never started is decided before"
    row = ledger.batch(landed_batch)
    if row is None or not row.status.landed:
        return _contradiction(
            f"the ledger names batch {landed_batch} as landed and its table of batches does not",
            {"landedBatch": landed_batch, "status": None if row is None else str(row.status)},
        )
    of_decided = contradicts_its_batches(ledger)
    if of_decided is not None:
        return _contradiction(of_decided, {"decided": None if ledger.decided is None else ledger.decided.batch})
    current = ledger.batch(BatchNumber(landed_batch + 1))
    landed, ends = ledger.landed.positions, row.ranges.ends
    next_ends = current.ranges.ends if current is not None else Positions()
    for key, offset in landed.items():
        if offset not in (ends.get(key), next_ends.get(key)) and not (key not in ends and offset in (0, PARTITION_END)):
            return _contradiction(
                f"the ledger stands at {offset} in {key}, and its batch {landed_batch} ended at {ends.get(key)}",
                {"topic": key.origin, "partition": key.key, "landed": offset, "batchEnd": ends.get(key)},
            )
    absent = [str(key) for key in ends if key not in landed]
    if absent:
        return _contradiction(f"the ledger has lost its positions in {', '.join(absent)}", {"partitions": absent})
    return _retired_contradiction(ledger)


def _retired_contradiction(ledger: LedgerView) -> Contradiction | None:
    """A partition that is no longer read must stand where it stood when the latest generation was made without it.

    Both that and what the latest driver was started to do are in one record, which is written with the first generation.
    """
    if ledger.query is None:
        return _contradiction("it does not say what its latest driver was started to do", {"query": None})
    left_out, retired = ledger.query.left_out, ledger.retired.positions
    for key in sorted({*left_out, *retired}):
        stood, stands = left_out.get(key), retired.get(key)
        if stood != stands:
            now, before = _words(stands), _words(stood)
            return _contradiction(
                f"it has {now} for {key}, and had {before} when the stream left that partition out",
                {"topic": key.origin, "partition": key.key, "leftOutAt": stood, "retiredAt": stands},
            )
    return None


def _words(position: int | None) -> str:
    return "no position" if position is None else f"position {position}"


def _contradiction(words: str, data: dict[str, object]) -> Contradiction:
    return Contradiction(
        ContradictionReason.LEDGER_INCONSISTENT,
        f"The ledger contradicts itself: {words}. Someone changed it by hand or restored a part of it; restore all of it.",
        (Evidence(words, data),),
    )
