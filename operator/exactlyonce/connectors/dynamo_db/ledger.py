"""The ledger over the object log in a table: its table is looked at, or made, before the log is."""

from __future__ import annotations

from collections.abc import Callable

from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog


class DynamoDbLedger(ObjectLogLedger):
    """An `ObjectLogLedger`; `require_table` raises where the table cannot hold one."""

    def __init__(self, log: ObjectLog, require_table: Callable[[], None]) -> None:
        super().__init__(log)
        self._require_table = require_table

    def prepare(self) -> None:
        """Make the table and the log, unless they are there.

        Raises:
            TableUnfit: if the table cannot hold a ledger, or is missing and may not be made.
            LedgerUnreachable: if it is not ready in time.
        """
        with self._named():
            self._require_table()
        super().prepare()
