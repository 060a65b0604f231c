"""What sinks have in common whose batches land as a list of files. Performs no I/O."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from exactlyonce.connectors.specs import Commit
from exactlyonce.schema.model import Model, SecretRef


class ManifestSink(Model):
    """A sink whose target is a `ManifestTarget`: rows are in files, and the ledger decides which files count."""

    holds_ledger: ClassVar[bool] = False
    two_phases: ClassVar[bool] = False
    tells_latest_load: ClassVar[bool] = False

    @property
    def further_secrets(self) -> tuple[SecretRef, ...]:
        """There are none."""
        return ()

    @property
    def commit(self) -> Commit:
        """A batch lands as a whole."""
        return Commit.BATCH

    @property
    def transaction_timeout(self) -> timedelta:
        """Only the list of files is written in the transaction that lands a batch."""
        return timedelta(minutes=5)
