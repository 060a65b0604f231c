"""Files whose ledger is an object log, broken on purpose: searched for over worlds with both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from exactlyonce.connectors.object_log.transaction import LogTransaction
from exactlyonce.positions.ranges import BatchNumber


@contextmanager
def what_is_in_an_archive_hides_what_was_written_since() -> Iterator[None]:
    """The object log: of a batch whose files were merged, the manifest counts that left the state before they were."""
    read = LogTransaction.read_committables

    def archived_first(self: LogTransaction, stream_id: str) -> Mapping[BatchNumber, str]:
        return dict(sorted({**read(self, stream_id), **self._archived(stream_id)}.items()))

    with mock.patch.object(LogTransaction, "read_committables", archived_first):
        yield
