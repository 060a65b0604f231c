"""The last records of a batch's ranges, read beside the batch: what takes time is done while Spark reads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import Partition

_AT_MOST_SECONDS = 5.0
"""A batch waits no longer for its fingerprints; without one it lands as well."""

log = logging.getLogger("exactlyonce.source")


class LastRecords:
    """A read that is under way in a thread. `read` is given the seconds that it may take."""

    def __init__(self, read: Callable[[float], Mapping[Partition, Fingerprint]]) -> None:
        self._read = read
        self._found: Mapping[Partition, Fingerprint] = {}
        self._deadline = time.monotonic() + _AT_MOST_SECONDS
        self._thread = threading.Thread(target=self._work, name="last records", daemon=True)
        self._thread.start()

    def result(self) -> Mapping[Partition, Fingerprint]:
        """Return the fingerprints that were read in time; never raises."""
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        return {} if self._thread.is_alive() else self._found

    def _work(self) -> None:
        try:
            self._found = self._read(_AT_MOST_SECONDS)
        except Exception as problem:
            log.info("The last records of the batch were not read: %s", problem)
