"""The keys under which the replays of a stream wait for a pass: all of one stream share one, so that they take turns.

Performs no I/O.
"""

from __future__ import annotations

from exactlyonce.control.wakeups import Key

_REPLAYS = ".replays"  # no stream's name has a dot


def replays_of(key: Key) -> Key:
    """Return the key of all replays of a stream."""
    return Key(key.namespace, f"{key.name}{_REPLAYS}")


def is_of_replays(key: Key) -> bool:
    """Whether it is the key of a stream's replays, and not of the stream."""
    return key.name.endswith(_REPLAYS)


def stream_of(key: Key) -> Key:
    """Return the stream whose replays a key stands for."""
    return Key(key.namespace, key.name.removesuffix(_REPLAYS))
