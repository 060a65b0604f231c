"""`python -m bench.without_stores`: the operator with every stream's stores in its own memory; all else is as it is.

What a launch takes here is what it takes without any store: the API server, the decision, the manifests.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from exactlyonce.api.resource import Stream
from exactlyonce.control.__main__ import main
from exactlyonce.control.guarded_stores import Opened
from exactlyonce.control.stream_assembly import StreamAssembly
from exactlyonce.control.wakeups import Key
from exactlyonce.positions.ranges import Partition
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.simulation.files import MemoryStore
from tests.simulation.source import MemoryTopic

_PARTITIONS = 4
_real = StreamAssembly._opened
_kept: dict[Key, Opened] = {}


def _opened(parts: StreamAssembly, stream: Stream, document: Mapping[str, Any]) -> Opened:
    """Open the real ones, which reads the secrets and asks no store, and return others in their places."""
    real = _real(parts, stream, document)
    key = Key(stream.metadata.namespace, stream.metadata.name)
    if key not in _kept:
        topics = stream.spec.source.spec.selection().origins
        ends = {Partition(topic, number): 100 for topic in topics for number in range(_PARTITIONS)}
        store = MemoryStore()
        store.location = real.checkpoints.location
        ledger = MemoryLedger(MemoryDatabase())
        _kept[key] = Opened(ledger, real.at_ledger, store, real.at_checkpoints, MemoryTopic(ends), real.at_source)
    return _kept[key]


if __name__ == "__main__":
    with patch.object(StreamAssembly, "_opened", _opened):
        sys.exit(main())
