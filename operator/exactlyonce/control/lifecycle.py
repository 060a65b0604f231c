"""The operator's process: kopf's watches wake streams, workers run their passes, a Lease says whether to act."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import kopf

from exactlyonce.api.stream_replay import REPLAY_KIND, REPLAY_PLURAL
from exactlyonce.control.cluster import GROUP, KIND, PLURAL, VERSION
from exactlyonce.control.lease import Lease
from exactlyonce.control.observer import Observer
from exactlyonce.control.passes import Passes
from exactlyonce.control.replay_keys import replays_of
from exactlyonce.control.sweeps import Sweeps
from exactlyonce.control.wakeups import Key, WakeUps
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.pod_names import DRIVER, REPLAY_OF_LABEL, ROLE_LABEL, launched_as

log = logging.getLogger("exactlyonce.operator")

_LIST_SECONDS = 60.0
_LIST_AGAIN_SECONDS = 5.0
_PEOPLES = ("uid", "generation", "deletionTimestamp", "annotations", "labels")
_HEAD_START_SECONDS = 30.0
"""What has changed goes before what is only tried again, unless that has waited for so long."""
_ON_ITS_WAY_SECONDS = 0.5
"""What changes at a pod before it runs comes in quick succession, and is only shown: one pass tells all of it."""


@dataclass
class Pulse:
    """What the health of the process is told by: moments of the process's own clock."""

    last_pass: float = 0.0
    last_list: float = float("-inf")
    in_hand: dict[Key, float] = field(default_factory=dict)


@dataclass
class Operator:
    """Workers over the queue of wake-ups; for one event loop."""

    wakeups: WakeUps
    passes: Passes
    lease: Lease
    workers: int
    every_stream: Callable[[], Iterable[Key]]
    observer: Observer
    monitor_seconds: float = 30.0
    watches_replays: bool = True
    pulse: Pulse = field(default_factory=Pulse)
    _lease_asked: float = field(default_factory=time.monotonic)
    _leading: asyncio.Event = field(default_factory=asyncio.Event)
    _lost: asyncio.Event = field(default_factory=asyncio.Event)
    _known: dict[Key, int] = field(default_factory=dict)

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Tell kopf what wakes a stream and its replays: a change of a resource, and of pods. No field is judged here."""

        @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
        async def stream_changed(
            namespace: str | None, name: str | None, meta: Mapping[str, Any], spec: Mapping[str, Any], **event: Any
        ) -> None:
            key = Key(namespace or "", name or "")
            # A replay leaves a stream that is suspended before a person changes the sink, and one that is gone.
            ends_replays = event["type"] == "DELETED" or (event["type"] is not None and spec.get("suspend"))
            if self.hear(key, event["type"], meta) and ((ends_replays and self.watches_replays) or spec.get("replay")):
                self._woken(replays_of(key), event["type"])

        @kopf.on.event("", "v1", "pods", labels={ROLE_LABEL: DRIVER}, registry=registry)
        async def pod_changed(
            namespace: str | None, meta: Mapping[str, Any], status: Mapping[str, Any], **event: Any
        ) -> None:
            is_on_its_way = status.get("phase") == "Pending" and "deletionTimestamp" not in meta
            for owner in meta.get("ownerReferences", []):
                if owner["kind"] == KIND:
                    key = Key(namespace or "", owner["name"])
                    self._woken(key, event["type"], _ON_ITS_WAY_SECONDS if is_on_its_way else 0.0)
                elif owner["kind"] == REPLAY_KIND:
                    stream = (meta.get("labels") or {}).get(REPLAY_OF_LABEL, "")
                    self._woken(replays_of(Key(namespace or "", stream)), event["type"], _ON_ITS_WAY_SECONDS)

        if not self.watches_replays:
            return

        @kopf.on.event(GROUP, VERSION, REPLAY_PLURAL, registry=registry)
        async def replay_changed(
            namespace: str | None, name: str | None, meta: Mapping[str, Any], spec: Mapping[str, Any], **event: Any
        ) -> None:
            if self._is_news(Key(namespace or "", launched_as(name or "")), event["type"], meta):
                self._woken(replays_of(Key(namespace or "", str(spec.get("stream") or ""))), event["type"])

    def hear(self, key: Key, kind: str | None, meta: Mapping[str, Any]) -> bool:
        """Hear of a resource from the watch, and return whether it is news.

        `kind` is None for what was there when the watch began.
        """
        if not self._is_news(key, kind, meta):
            return False
        self._woken(key, kind)
        return True

    @property
    def lease_silent_seconds(self) -> float:
        """How long ago the Lease was last asked for, with or without an answer."""
        return time.monotonic() - self._lease_asked

    async def run(self, stop: asyncio.Event) -> None:
        """Run passes until `stop`; those under way are finished."""
        executor = ThreadPoolExecutor(self.workers, thread_name_prefix="pass")
        tasks = [asyncio.create_task(self._work(executor), name=f"worker-{number}") for number in range(self.workers)]
        tasks.append(asyncio.create_task(self._lead(), name="lease"))
        tasks.append(asyncio.create_task(self._sweep(), name="sweep"))
        monitoring = self.observer.monitor.run(self.monitor_seconds, lambda: self.lease.is_held)
        tasks.append(asyncio.create_task(monitoring, name="monitor"))
        tasks.append(asyncio.create_task(self.observer.metrics.watch_event_loop(), name="event loop"))
        try:
            stopped = asyncio.create_task(stop.wait())
            done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()  # a worker that ended has failed: say why, and let the process end
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(executor.shutdown)
            await asyncio.to_thread(self.lease.release)

    def _woken(self, key: Key, kind: str | None, after_seconds: float = 0.0) -> None:
        """Wake a stream before those that are only looked at, unless the watch lists everything or it is to wait."""
        has_head_start = kind is not None and not after_seconds
        if all(key):
            self.wakeups.wake(key, after_seconds, _HEAD_START_SECONDS if has_head_start else 0.0)

    def _is_news(self, key: Key, kind: str | None, meta: Mapping[str, Any]) -> bool:
        """Whether a person may have changed something: what changes in the status alone is what passes write."""
        if kind == "DELETED":
            self._known.pop(key, None)
            return True
        told = json.dumps([meta.get(name) for name in _PEOPLES], sort_keys=True)
        before, self._known[key] = self._known.get(key), hash(told)
        return before != self._known[key]

    async def _lead(self) -> None:
        """Renew the Lease for as long as the process lives, outside of the threads that passes keep busy."""
        while True:
            held = await asyncio.to_thread(self.lease.step)
            self._lease_asked = time.monotonic()
            if held and not self._leading.is_set():
                log.info("this operator holds the lease and acts", extra={"identity": self.lease.identity})
                self._lost.clear()
                self._leading.set()
            elif not held and self._leading.is_set():
                log.warning("this operator has lost the lease and stops acting")
                self._leading.clear()
                self._lost.set()
            await asyncio.sleep(self.lease.times.renew_seconds)

    async def _sweep(self) -> None:
        """List all streams, and wake those that `Sweeps` finds due: what a watch has missed costs time only."""
        sweeps = Sweeps()
        while True:
            leads = self._leading.is_set()
            try:
                keys = await asyncio.to_thread(lambda: list(self.every_stream()))
                self.pulse.last_list, pause = time.monotonic(), _LIST_SECONDS
                if leads:
                    for key, after_seconds in sweeps.due(keys, self.pulse.last_list).items():
                        self.wakeups.wake(key, after_seconds)
            except ExactlyOnceError as problem:
                log.warning("the streams cannot be listed: %s", problem)
                pause = _LIST_AGAIN_SECONDS
            if not leads:
                sweeps.end()
            with suppress(TimeoutError):
                await asyncio.wait_for((self._lost if leads else self._leading).wait(), pause)

    async def _work(self, executor: ThreadPoolExecutor) -> None:
        """Run one pass after another while this operator leads."""
        loop = asyncio.get_running_loop()
        while True:
            await self._leading.wait()
            due = await self.wakeups.next()
            if not self.lease.is_held:
                self.wakeups.done(due.key)
                self.wakeups.wake(due.key)
                await asyncio.sleep(0.2)
                continue
            begun = self.pulse.in_hand[due.key] = time.monotonic()
            after_seconds: float | None = 30.0
            outcome = "failed"
            try:
                following = await loop.run_in_executor(executor, self.passes.run, due.key)
                after_seconds, outcome = following.after_seconds, following.outcome
            except Exception:
                log.exception("a pass failed with an unexpected error", extra={"stream": str(due.key)})
            finally:
                self.pulse.in_hand.pop(due.key, None)
                self.pulse.last_pass = time.monotonic()
                self.observer.metrics.passed(outcome, self.pulse.last_pass - begun, due.late_seconds)
                self.wakeups.done(due.key)
            if after_seconds is not None:
                self.wakeups.wake(due.key, after_seconds)
