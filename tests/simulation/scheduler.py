"""A deterministic scheduler: every actor is a greenlet, every effect a step, the seed decides who goes next.

The code under test is the product's own, unchanged: it calls its ports, the ports call `step`, and between any two
steps another actor may run, or the actor's process may be killed or frozen. The same seed gives the same run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import greenlet

NEVER = 1 << 62


class Killed(BaseException):
    """Ends an actor as SIGKILL does: no handler of the code under test may answer it."""


@dataclass(eq=False)
class Process:
    """Actors that live and die together."""

    name: str
    dead: bool = False
    ended_at: int = NEVER
    """The step in which it was killed or its last actor returned."""
    frozen: bool = False
    actors: list[Actor] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether it was killed or all of its actors have returned."""
        if self.dead:
            return True
        for actor in self.actors:  # noqa: SIM110 - asked at every step, and all() costs twice as much
            if not actor.done:
                return False
        return True


@dataclass(eq=False)
class Actor:
    """One thread of control."""

    name: str
    process: Process
    run: greenlet
    may_go: Callable[[], bool] | None = None
    result: Any = None
    error: BaseException | None = None
    done: bool = False
    """Whether it has returned, or was killed."""


class Simulation:
    """Runs actors one step at a time in the order that the seed gives."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.steps = 0
        self.now = 0
        self._told: list[tuple[str, str]] = []
        self._actors: list[Actor] = []
        self._hub = greenlet.getcurrent()
        self._current: Actor | None = None
        self._some_done = False

    def spawn(self, process: Process, name: str, work: Callable[[], Any]) -> Actor:
        """Add an actor; it starts when the scheduler first picks it."""

        def body() -> None:
            try:
                actor.result = work()
            except Killed:
                pass
            except BaseException as problem:
                actor.error = problem
            finally:
                actor.done = self._some_done = True
                if process.ended:
                    process.ended_at = min(process.ended_at, self.steps)

        actor = Actor(name, process, greenlet(body, self._hub))
        process.actors.append(actor)
        self._actors.append(actor)
        return actor

    def step(self, label: str) -> None:
        """Give others the chance to run before the effect that `label` names."""
        actor = self._current
        if actor is None or actor.process.dead:
            return
        self._told.append((actor.name, label))
        self._hub.switch()

    def wait(self, label: str, may_go: Callable[[], bool]) -> None:
        """Let others run until `may_go()`."""
        actor = self._current
        if actor is None or actor.process.dead:
            return
        self._told.append((actor.name, f"waits for {label}"))
        actor.may_go = may_go
        self._hub.switch()

    def kill(self, process: Process) -> None:
        """End a process as SIGKILL does; its database sessions end with it."""
        process.dead = True
        process.ended_at = min(process.ended_at, self.steps)
        self.tell(f"{process.name} is killed")
        for actor in process.actors:
            if actor.run:  # started and not yet returned
                before, self._current = self._current, actor
                actor.run.throw(Killed)
                self._current = before
            actor.done = self._some_done = True

    def close(self) -> None:
        """End whoever has not returned: a greenlet that waits for ever is never collected, and keeps its whole world."""
        for process in {actor.process for actor in self._actors if not actor.done}:
            self.kill(process)

    @property
    def running(self) -> Process | None:
        """The process whose step this is."""
        return None if self._current is None else self._current.process

    def tell(self, words: str) -> None:
        """Note in the trace what happened to the world."""
        self._told.append(("--", words))

    @property
    def trace(self) -> list[str]:
        """Every step and everything that was told, in order."""
        return [f"{who} {what}" if who == "--" else f"{who}: {what}" for who, what in self._told]

    def run_one(self) -> bool:
        """Let one actor take one step; False when none can."""
        actor = self._choose()
        if actor is None:
            self.now += 50
            return False
        actor.may_go = None
        self.steps += 1
        self.now += 1
        self._current = actor
        actor.run.switch()
        self._current = None
        return True

    def _choose(self) -> Actor | None:
        """Choose one of the actors that can go, each with the same chance.

        One is drawn first and only asked whether it can go; that spares asking all of them most of the time.
        """
        if self._some_done:
            self._actors = [actor for actor in self._actors if not actor.done]
            self._some_done = False
        actors = self._actors
        if not actors:
            return None
        dice = self.random.random
        drawn = actors[int(dice() * len(actors))]
        process, may_go = drawn.process, drawn.may_go
        if not (process.frozen or process.dead) and (may_go is None or may_go()):
            return drawn
        ready = [
            actor for actor in actors
            if actor is not drawn
            and not (actor.process.frozen or actor.process.dead)
            and (actor.may_go is None or actor.may_go())
        ]  # fmt: skip
        return ready[int(dice() * len(ready))] if ready else None
