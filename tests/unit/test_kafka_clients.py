"""A client that only the garbage collector finds is destroyed by a thread of ours, not where the collector happens to run."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from exactlyonce.connectors.kafka.admin import KafkaAdmin
from exactlyonce.errors import SourceUnreachable

NOBODY = "127.0.0.1:1"


def asked_in_vain() -> weakref.ref[object]:
    """Ask brokers that do not answer; what is left is a cycle: the error, the frames that it came through, and the client."""
    admin = KafkaAdmin(NOBODY, {"bootstrap.servers": NOBODY}, 0.2)
    future = admin.client.describe_cluster(request_timeout=0.2)
    kept: list[object] = [admin, future]
    kept.append(kept)
    with pytest.raises(SourceUnreachable):
        admin.answer(future)
    return weakref.ref(admin.client)


def test_the_collector_of_another_thread_leaves_a_client_to_the_next_that_asks() -> None:
    gc.disable()  # so that it runs where this test says
    try:
        client = asked_in_vain()
        other = threading.Thread(target=gc.collect)
        other.start()
        other.join()
        assert client() is not None, "rd_kafka_destroy in a thread of librdkafka's own would end the process"
        asked_in_vain()
        assert client() is None, "and it is destroyed then"
    finally:
        gc.enable()
