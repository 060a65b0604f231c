"""What became of a load that a decision names, asked by committing it. No pyspark here."""

from __future__ import annotations

from exactlyonce.errors import Unreachable
from exactlyonce.ledger.decided import Committable
from exactlyonce_spark.target import LoadState, TwoPhaseTarget
from exactlyonce_spark.two_phase_submit import submitted_state

COMMIT_TRIES = 3


class NotCommitted(Unreachable):
    """What was decided is not committed yet: the next driver asks the sink what became of it, and finishes the batch."""


def outcome(target: TwoPhaseTarget, committable: Committable) -> LoadState:
    """Commit a load that a decision names, and return what became of it: COMMITTED, ABORTED or UNKNOWN.

    That the sink does not find it proves nothing: it was committed and forgotten, or aborted and forgotten.

    Raises:
        Unreachable: if the sink does not answer, or says again and again that the load is prepared.
    """
    if committable.staged is not None:
        return submitted_state(target, committable)
    for _ in range(COMMIT_TRIES):
        if target.commit(committable):
            return LoadState.COMMITTED
        state = target.state_of(committable)
        if state is not LoadState.PREPARED:
            return state
    raise NotCommitted(
        f"The sink does not commit {committable}, and says that it is prepared; the next driver tries again."
    )
