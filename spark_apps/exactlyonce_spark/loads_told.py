"""What a sink of two phases says of the loads of the batch that a driver commits, for the driver's metrics. No pyspark here."""

from __future__ import annotations

from typing import Protocol

from exactlyonce_spark.target import LoadState


class LoadsWatcher(Protocol):
    """Is told of the loads of the latest decided batch."""

    def loads_decided(self, count: int) -> None:
        """So many loads are to be committed, and the sink was not asked about any of them yet."""
        ...

    def load_answered(self, state: LoadState) -> None:
        """The sink has said this of one of them."""
        ...


_watcher: LoadsWatcher | None = None


def watch(watcher: LoadsWatcher | None) -> None:
    """Tell `watcher` of loads from now on."""
    global _watcher
    _watcher = watcher


def decided(count: int) -> None:
    """Tell that so many loads are to be committed."""
    if _watcher is not None:
        _watcher.loads_decided(count)


def answered(state: LoadState) -> LoadState:
    """Tell what the sink says of one of them, and return it."""
    if _watcher is not None:
        _watcher.load_answered(state)
    return state
