"""Passes over streams and over their replays, which wait in one queue and are run by the same workers."""

from __future__ import annotations

from dataclasses import dataclass

from exactlyonce.control.next_pass import Next
from exactlyonce.control.replay_keys import is_of_replays
from exactlyonce.control.replay_pass import ReplayPasses
from exactlyonce.control.stream_pass import StreamPasses
from exactlyonce.control.wakeups import Key


@dataclass(frozen=True)
class Passes:
    """Runs the pass that a key asks for; safe to use from several threads, one per key."""

    streams: StreamPasses
    replays: ReplayPasses

    def run(self, key: Key) -> Next:
        """Run one pass. Never raises for what the outside world does."""
        return self.replays.run(key) if is_of_replays(key) else self.streams.run(key)
