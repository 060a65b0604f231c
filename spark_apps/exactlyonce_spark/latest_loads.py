"""What a sink of two phases has committed last is compared with what the ledger knows, by label. No pyspark here.

A ledger that went back, by a failover that lost commits or a restore, does not name it; to continue then would land its records
a second time. docs/adr/0060.
"""

from __future__ import annotations

from exactlyonce.errors import Refused
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.known_loads import FoundLoad, LatestLoads, told_spans
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.settlement import how_to_answer
from exactlyonce.ledger.two_phase import record_found
from exactlyonce_spark.landing import require_permit
from exactlyonce_spark.target import TwoPhaseTarget


class LedgerBehindSink(Refused):
    """The sink has committed a load that the ledger does not know: the ledger went back, and would land its records again."""


def latest_of(target: TwoPhaseTarget, decided: DecidedBatch) -> LatestLoads | None:
    """Return what the stream's row says of a batch that is decided now; None for a sink that is never compared with it."""
    if not target.tells_latest:
        return None
    shown = target.latest(None)
    labels = tuple(committable.label for committable in decided.committables)
    return LatestLoads(decided.batch, labels, None if shown is None else shown.label, target.place)


def require_all_known(ledger: Ledger, permit: Permit, target: TwoPhaseTarget) -> None:
    """Require that the ledger knows the load that the sink has committed last; one that it does not know is recorded.

    It comes before anything is decided or committed, so that what the sink shows is what earlier drivers committed.

    Raises:
        Fenced: if this process may not land any more.
        LedgerBehindSink: naming the load and its records, or that the sink has forgotten what it committed last.
        CommitOutcomeUnknown: the next driver looks again.
    """
    if not target.tells_latest:
        return
    known = require_permit(ledger, permit).stream.loads
    latest = target.latest(known.latest)
    if latest is None:
        if known.found is not None:
            raise LedgerBehindSink(_forgotten(known.found, target))
        return
    if known.names(latest, target.place):
        if known.found is not None:
            record_found(ledger, permit, None)
        return
    if known.found != latest:
        record_found(ledger, permit, latest)
    raise LedgerBehindSink(_unknown(latest, known.latest, target))


def _unknown(found: FoundLoad, latest: LatestLoads | None, target: TwoPhaseTarget) -> str:
    stands = "knows no load of this stream" if latest is None else f"knows none after batch {latest.batch}"
    where = f"The sink ({target.place})" if target.place else "The sink"
    return (
        f"{where} has committed batch {found.batch} of this stream under {found.label} ({found.rows} rows of "
        f"{told_spans(found.spans)}), and the ledger {stands}: it went back to an earlier state. Nothing more is written. "
        f"{how_to_answer(found.label)}"
    )


def _forgotten(found: FoundLoad, target: TwoPhaseTarget) -> str:
    where = f"The sink ({target.place})" if target.place else "The sink"
    return (
        f"The ledger went back: batch {found.batch} had landed, and the ledger does not have it. {where} has forgotten which "
        "load it committed last, so nobody can tell which rows are there. Nothing more is written. Restore a later state of "
        "the ledger; or look into the sink and set the positions with `exactlyonce offsets reset`."
    )
