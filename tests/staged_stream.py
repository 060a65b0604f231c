"""A stream into a sink that commits a load once it is submitted, over the simulation's ledger and store."""

from __future__ import annotations

from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.fence import Permit
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.target import TwoPhaseTarget
from tests.ledgers import STREAM
from tests.simulation.staged_store import StagedStore, StagingTarget
from tests.two_phase_stream import OF_A_BATCH, OF_A_FINISH, World

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

    def forget(self) -> None:
        """A day passes, and the sink forgets what has ended."""
        self.files.pass_minutes(24 * 60, lambda: True)
