"""The state of a stateful query in the model of Spark: every record that it has counted, a version for each batch.

Files lie as Spark's do: `state/0/0/VERSION_ID.snapshot`, and the commit of a batch names the id of the version that it made
(checkpoint format 2). A list, not a set: a record that is counted twice shows.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence

from exactlyonce.checkpoint.store import FileMissing, LogStore

_OPERATOR = {
    "operatorInfo": {"operatorId": 0, "operatorName": "count"},
    "stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 1}],
}


class StateMissing(Exception):
    """A batch does not find the state of the one before."""


class State:
    """The state of one query in one folder, as one process writes it."""

    def __init__(self, store: LogStore, folder: str, writer: str) -> None:
        self._store = store
        self._folder = folder
        self._writer = writer.replace(" ", "-").replace(".", "-")

    def load(self, batch: int) -> list[Hashable]:
        """Return what was counted before a batch. Batch 0 makes the state. Source: StateStoreErrors, Spark 4.2.0."""
        if batch == 0:
            self._store.create(f"{self._folder}/state/0/_metadata/metadata", b"v1\n" + json.dumps(_OPERATOR).encode())
            return []
        try:
            commit = json.loads(self._store.read(f"{self._folder}/commits/{batch - 1}").split(b"\n")[1])
            ((unique_id,),) = commit["stateUniqueIds"]["0"]
            content = self._store.read(f"{self._folder}/state/0/0/{batch}_{unique_id}.snapshot")
        except (FileMissing, KeyError):
            raise StateMissing("STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY") from None
        return [tuple(record) for record in json.loads(content)]

    def save(self, batch: int, counted: Sequence[Hashable]) -> None:
        """Write what was counted up to and with a batch."""
        content = json.dumps(list(counted)).encode()
        self._store.create(f"{self._folder}/state/0/0/{batch + 1}_{self._unique_id(batch)}.snapshot", content)

    def commit(self, batch: int) -> bytes:
        """Return the commit of a batch, which names the state that this process made."""
        ids = {"0": [[self._unique_id(batch)]]}
        return b"v2\n" + json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": ids}).encode()

    def _unique_id(self, batch: int) -> str:
        return f"{self._writer}-{batch}"
