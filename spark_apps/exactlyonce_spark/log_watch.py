"""Is the log that a driver reads still the one that it has read so far? Asked before each commit. No pyspark here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Partition, Ranges
from exactlyonce.source.connector import Reading, SourceCheck, TellsWithoutRecords
from exactlyonce.source.port import LeaderEpochs
from exactlyonce_spark.source_check import (
    KnownLog,
    read_again_where_nothing_else_tells,
    require_all_was_there,
    without_proof,
)

log = logging.getLogger("exactlyonce.batch")


class LogWatch:
    """What one driver knows of the log, from batch to batch; `begin` comes before the batch is read, `require` after it."""

    def __init__(self, source: SourceCheck) -> None:
        self._source = source
        self._verified: dict[Partition, int] = {}
        self._begun: LeaderEpochs = {}
        self._landed: Mapping[Partition, Fingerprint] = {}
        self._reading: Reading | None = None
        self._read: Mapping[Partition, Fingerprint] = {}
        self._told = False

    def request_epochs(self, ranges: Ranges) -> Callable[[], LeaderEpochs]:
        """Ask for the leaders' epochs before a batch is read; the answer is given to `begin`."""
        read = list(ranges.non_empty())
        return self._source.request_leader_epochs(read) if read else dict

    def begin(
        self,
        ranges: Ranges,
        origin_ids: Mapping[str, str],
        landed: Mapping[Partition, Fingerprint],
        epochs: LeaderEpochs,
    ) -> None:
        """Begin to read the last record of each range; `landed` are the fingerprints of what landed before them.

        It is read beside the batch, under the same leader: `epochs` are from before both. Where an epoch proves nothing, it is
        read before the batch, so that the record found after the batch tells whether the log was the same all the time.
        """
        self._landed, self._begun = landed, epochs
        self._reading, self._read = self._source.last_records(ranges), {}
        if without_proof(ranges.non_empty(), origin_ids, epochs):
            self.fingerprints(ranges)

    def fingerprints(self, ranges: Ranges) -> Mapping[Partition, Fingerprint]:
        """Return the fingerprints of the last records of the ranges, which takes a bounded time.

        One that could not be read is no failure: the partition lands without one, and that is told once.
        """
        if self._reading is not None:
            without = self._reading.without_records if isinstance(self._reading, TellsWithoutRecords) else frozenset()
            self._read, self._reading = self._reading.result(), None
            ends = ranges.non_empty().ends  # nothing follows where a partition ends, so nothing is ever compared there
            lacking = [str(key) for key in ends if key not in self._read and key not in ends.ended | without]
            if lacking and not self._told:
                self._told = True
                log.warning(
                    "No fingerprint of the last record was read of %s: if the source is replaced there, it is not noticed.",
                    ", ".join(lacking),
                )
        return self._read

    def require(
        self, batch: BatchNumber, ranges: Ranges, origin_ids: Mapping[str, str], records_read: int | None = None
    ) -> KnownLog:
        """Require that the source still is what was read, and return what is known of it now.

        Raises:
            RecordsLost, RecordsReplaced, OriginReplaced, LeaderChanged: nothing may be landed.
        """
        known = KnownLog(self._verified, self._begun, self._landed, self.fingerprints(ranges))
        self._read = read_again_where_nothing_else_tells(self._source, ranges, origin_ids, known)
        known = replace(known, read=self._read)
        epochs = require_all_was_there(self._source, batch, ranges, origin_ids, known, records_read)
        self._verified = {**self._verified, **epochs}
        return replace(known, verified=self._verified, begun=epochs)
