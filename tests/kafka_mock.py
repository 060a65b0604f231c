"""A Kafka in this process, librdkafka's own mock of one, that is told what its brokers answer to the next requests."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

PRODUCE = 0
"""The number of the request that carries records, as Kafka's protocol has it."""

OFFSET_FETCH = 9
"""The number of the request for what a group has committed."""

_CONSUMER, _MOST_SAID = 1, 512


class MockKafka:
    """One broker with one topic of one partition. `bootstrap` is where it answers."""

    def __init__(self, library: ctypes.CDLL, cluster: ctypes.c_void_p, bootstrap: str) -> None:
        self._library, self._cluster, self.bootstrap = library, cluster, bootstrap

    def answers(self, request: int, *errors: int) -> None:
        """Have the next requests of a kind be answered with these errors, one each."""
        told = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(errors)), told
        )

    def knows(self, request: int, versions: range) -> None:
        """Have the broker say that it knows these versions of a kind of request, and no others."""
        bounds = (ctypes.c_int16(number) for number in (request, versions.start, versions.stop - 1))
        assert self._library.rd_kafka_mock_set_apiversion(self._cluster, *bounds) == 0

    def is_slow(self, milliseconds: int) -> None:
        """Have each answer take so long from now on."""
        self._library.rd_kafka_mock_broker_set_rtt(self._cluster, ctypes.c_int32(1), ctypes.c_int(milliseconds))


@contextmanager
def mock_kafka(topic: str) -> Iterator[MockKafka]:
    """Run one while the block does.

    Source: rdkafka_mock.h of librdkafka, which the wheel of confluent-kafka brings.
    """
    library = ctypes.CDLL(str(_library()))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    said = ctypes.create_string_buffer(_MOST_SAID)
    settings = ctypes.c_void_p(library.rd_kafka_conf_new())
    handle = ctypes.c_void_p(library.rd_kafka_new(_CONSUMER, settings, said, ctypes.c_size_t(_MOST_SAID)))
    assert handle.value, said.value.decode()
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(handle, 1))
    library.rd_kafka_mock_topic_create(cluster, topic.encode(), 1, 1)
    try:
        yield MockKafka(library, cluster, library.rd_kafka_mock_cluster_bootstraps(cluster).decode())
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(handle)


def _library() -> Path:
    place = Path(confluent_kafka.__file__).parent
    found = sorted([*place.parent.glob("confluent_kafka.libs/librdkafka*"), *place.glob(".dylibs/librdkafka*")])
    assert found, "the wheel of confluent-kafka has librdkafka beside it"
    return found[0]
