"""Whether brokers answer with what is stable alone, as they do from 2.5 on.

The marker must not be read as it was before a commit that is still on its way. Earlier brokers know no `requireStable`, and
librdkafka leaves it out without a word. No function of a client tells which versions of a request its brokers know; it only
logs what they answered to ApiVersions as it connected, under the debug context `feature`.

Source: KIP-447 and OffsetFetchRequest.json of Kafka (`requireStable`: versions 7+); rd_kafka_broker_set_api_versions of
librdkafka.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from exactlyonce_spark.connectors.kafka.sink_errors import KafkaRefuses, Named

log = logging.getLogger("exactlyonce.batch")

STABLE_OFFSET_FETCH = 7

_DEBUG = 7
"""The level of syslog at which librdkafka logs what it is asked to by `debug`."""

_TOLD = re.compile(r"(?P<broker>\S+/(?:\d+|bootstrap)):\s+ApiKey OffsetFetch \(9\) Versions \d+\.\.(?P<most>\d+)")


class ToldVersions(logging.Handler):
    """Takes what a client logs of its brokers' answers to ApiVersions, and nothing else of it."""

    def __init__(self) -> None:
        super().__init__()
        self._most: dict[str, int] = {}
        self._logger = logging.Logger("exactlyonce.kafka.versions")
        self._logger.addHandler(self)

    def arguments(self) -> Mapping[str, Any]:
        """Return what a client is made with besides its properties, so that it tells."""
        return {"logger": self._logger}

    def properties(self) -> Mapping[str, Any]:
        """Return the properties with which a client tells."""
        return {"debug": "feature", "log_level": _DEBUG}

    @property
    def are_told(self) -> bool:
        """Whether a broker has answered."""
        return bool(self._most)

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line of the client's log."""
        found = _TOLD.search(record.getMessage())
        if found is not None:
            self._most[found["broker"]] = int(found["most"])

    def require_stable_offsets(self, named: Named) -> None:
        """Require that every broker that has answered is of 2.5 or later.

        Raises:
            KafkaRefuses: naming the broker.
        """
        if not self._most:
            log.warning(
                "Kafka at %s did not say which versions of requests it supports; 2.5 or later is required.",
                named.brokers,
            )
        for broker, most in sorted(self._most.items()):
            if most < STABLE_OFFSET_FETCH:
                raise KafkaRefuses(
                    f"The broker {broker.rpartition('/')[0]} of Kafka at {named.brokers} is older than 2.5 (it supports "
                    f"OffsetFetch up to version {most}, and {STABLE_OFFSET_FETCH} is required): a committed batch could be "
                    "taken for an uncommitted one and be written twice. Upgrade the brokers, or write to other ones."
                )
