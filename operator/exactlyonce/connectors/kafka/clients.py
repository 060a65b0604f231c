"""Clients of librdkafka are destroyed by threads of ours alone.

An error keeps the frames that it came through, and those keep the client that was asked: a cycle, which the garbage collector
finds in whatever thread it runs. In one of librdkafka's own threads, which hand out answers, `rd_kafka_destroy` ends the whole
process (librdkafka, rdkafka.c: "calling rd_kafka_destroy() from librdkafka owned thread is prohibited").
"""

from __future__ import annotations

import weakref
from collections import deque

_dropped: deque[object] = deque()


def destroy_later(holder: object, client: object) -> None:
    """Keep a client for as long as what holds it, and then until a thread of ours calls `destroy_dropped`."""
    weakref.finalize(holder, _dropped.append, client).atexit = False


def destroy_dropped() -> None:
    """Let go of the clients that nobody holds any more; called before a client is made or asked."""
    while _dropped:
        _dropped.popleft()
