"""What a decision is about, as its checks ask for it. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from exactlyonce.ledger.rows import LedgerView
from exactlyonce.reconcile.compare import LogVerdict, compare_logs
from exactlyonce.reconcile.decided import finish_commit
from exactlyonce.reconcile.identity import Identity, examine_identity
from exactlyonce.reconcile.kept_state import keeps_state
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.quarantine import passed_over
from exactlyonce.reconcile.replan import replanned
from exactlyonce.reconcile.source_change import SourceChange, source_change
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    FinishBatch,
    FinishCommit,
    RebuildFromSink,
    ReplanBatch,
    ReplayBatch,
    Resume,
    RewindToSink,
    SkipLanded,
)


@dataclass(frozen=True)
class Case:
    """One observation, and what more than one check asks of it; each answer is worked out once, when it is first asked for."""

    seen: Observation

    @cached_property
    def examined(self) -> Identity | Contradiction:
        """Whose the stream is, or what contradicts itself there."""
        return examine_identity(self.seen)

    @property
    def identity(self) -> Identity:
        """Whose the stream is, for every check after the first."""
        assert isinstance(self.examined, Identity), "the first check ends the decision otherwise"
        return self.examined

    @property
    def ledger(self) -> LedgerView:
        """The ledger, for every check after those of a first start."""
        assert self.seen.ledger is not None, "a stream without a ledger is a first start"
        return self.seen.ledger

    @cached_property
    def change(self) -> SourceChange | None:
        """How what the resource reads differs from what the checkpoint reads."""
        return source_change(self.seen, self.ledger)

    @cached_property
    def by_the_logs(self) -> LogVerdict:
        """What Spark's logs and the ledger say together."""
        return compare_logs(self.seen, self.ledger)

    @cached_property
    def with_the_checkpoint(self) -> Resume | ReplayBatch | ReplanBatch | SkipLanded | FinishBatch | FinishCommit:
        """What the next driver does with the current batch, where the checkpoint is usable."""
        verdict = self.by_the_logs
        assert not isinstance(verdict, RebuildFromSink | RewindToSink), "an earlier check rebuilds"
        if isinstance(verdict, ReplayBatch):
            again = replanned(self.seen, self.ledger, verdict, keeps_state=keeps_state(self.seen))
            return again if isinstance(again, ReplanBatch) else self._passed_over(again)
        if isinstance(verdict, FinishBatch):
            return self._passed_over(verdict)
        if isinstance(verdict, Resume | SkipLanded) and self.ledger.decided is not None:
            return finish_commit(verdict, self.ledger.decided)
        return verdict

    def _passed_over(self, verdict: ReplayBatch | FinishBatch) -> ReplayBatch | FinishBatch:
        request = self.seen.request
        return passed_over(request.poison, verdict, bisects=request.bisects)
