"""A stream into a sink that commits a load once it is submitted, over the simulation's ledger and store."""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.ledger.decided import Answer, DecidedBatch
from exactlyonce.ledger.fence import Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.publish import record_answers
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.target import TwoPhaseTarget
from tests.ledgers import STREAM, new_stream
from tests.simulation.staged_store import StagedStore, StagingTarget
from tests.two_phase_stream import ALL, OF_A_BATCH, OF_A_FINISH, World

OF_A_STAGED_BATCH = (*OF_A_BATCH, "submit.recorded", "submit.sent", "submit.left-out", "submit.file-removed")
OF_A_STAGED_FINISH = (*OF_A_FINISH[:-1], "submit.recorded", "submit.sent", "submit.file-removed")
"""Nothing is aborted there: a file that nobody decided is removed."""


class StagedWorld(World):
    """Each task's rows wait in a file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.files = StagedStore(self.asked.append, self._fate, self.visible.update)
        self.store = self.files

    def target(self, permit: Permit | None = None) -> TwoPhaseTarget:
        return StagingTarget(self.files, LoadLabels(STREAM, "token-1"), (permit or self.permit).epoch)

    def decided(self) -> DecidedBatch:
        view = self.ledger.view(STREAM)
        assert view is not None
        assert view.decided is not None
        return view.decided

    def landed_once(self) -> bool:
        return (self.visible, self.status(), self.files.files) == (ALL, BatchStatus.LANDED, {})

    def answered(self, answers: Mapping[str, Answer]) -> None:
        """A person answers for loads of batch 1, and a driver finishes it."""
        epoch = Epoch(self.permit.epoch + 1)
        raise_epoch(self.ledger, new_stream(self.ledger), epoch, "ticket")
        record_answers(self.ledger, STREAM, epoch, BatchNumber(1), answers)
        self.permit = claim_epoch(self.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")[0]
        self.finish()

    def forget(self) -> None:
        """A day passes, and the sink forgets what has ended."""
        self.files.pass_minutes(24 * 60, lambda: True)
