"""What is done to the stream while it runs, one act after the other."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from demo.setup import UNRESPONSIVE_SECONDS, Setup
from demo.sinks import Sink
from demo.sources import Source
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.local import LocalLauncher
from exactlyonce.positions.ranges import Epoch

Until = Callable[[Callable[[], bool], str], None]
"""Waits until a condition holds, while the screen continues; the sentence says what it waits for."""


@dataclass(frozen=True)
class Act:
    """Something done to the attempt that is running, and the line that tells it."""

    title: str
    do: Callable[[Scene], None]
    kills: int = 1


@dataclass
class Scene:
    """What an act works with."""

    setup: Setup
    launcher: LocalLauncher
    attempt: int
    until: Until
    say: Callable[[str], None]


def kill_at(point: str) -> Callable[[Scene], None]:
    """Return an act: SIGKILL at a point inside the next batch."""

    def act(scene: Scene) -> None:
        scene.setup.arm(point)
        scene.until(lambda: scene.setup.fired(point), f"a batch comes to {point}")

    return act


def kill_at_random(scene: Scene) -> None:
    """SIGKILL at a moment drawn at random, when some more batches have landed."""
    seconds = random.uniform(0.2, 1.5)
    scene.until(_after(seconds), "a moment drawn at random")
    scene.launcher.kill(Epoch(scene.attempt))


def delete_checkpoint(scene: Scene) -> None:
    """Delete the whole checkpoint location, then SIGKILL."""
    shutil.rmtree(scene.setup.location, ignore_errors=True)
    scene.launcher.kill(Epoch(scene.attempt))
    shutil.rmtree(scene.setup.location, ignore_errors=True)


def freeze_and_wake(scene: Scene) -> None:
    """Freeze the driver until its successor has landed a batch; woken, it must fail at its fence."""
    scene.launcher.kill(Epoch(scene.attempt), signal.SIGSTOP)
    scene.say(f"attempt {scene.attempt} is frozen; after {UNRESPONSIVE_SECONDS} s without an answer it is given up")
    scene.until(lambda: scene.setup.latest_landing_attempt() > scene.attempt, "its successor has landed a batch")
    scene.launcher.kill(Epoch(scene.attempt), signal.SIGCONT)
    scene.say(f"attempt {scene.attempt} is woken, and believes that it is still the driver")
    scene.until(lambda: scene.setup.last_words(scene.attempt) is not None, "it has ended")
    words = scene.setup.last_words(scene.attempt)
    assert words is not None
    if words.ending is not Ending.FENCED:
        raise AssertionError(f"The woken driver ended as {words.ending}, not at its fence: {words.message}")
    scene.say(f"attempt {scene.attempt} {words.ending}: {words.message}")


def reshard_and_kill(number: int) -> Callable[[Scene], None]:
    """Return an act: change the source's shards while they are read, then SIGKILL at a moment drawn at random."""

    def act(scene: Scene) -> None:
        scene.say(scene.setup.source.reshard(number))
        kill_at_random(scene)

    return act


def acts_on(source: Source, sink: Sink) -> tuple[Act, ...]:
    """Return the acts, told in the words of a source and a sink."""
    return (
        Act(sink.after_commit, kill_at("batch.landed")),
        _random_kill(source, 0),
        Act("freeze the driver, let a successor take over, wake it", freeze_and_wake, kills=0),
        Act(sink.after_tasks, kill_at("batch.rows-written")),
        Act("delete the checkpoint, then SIGKILL", delete_checkpoint),
        Act(sink.before_commit, kill_at("land.before-commit")),
        _random_kill(source, 1),
    )


def _random_kill(source: Source, number: int) -> Act:
    if source.reshards is None:
        return Act("SIGKILL at a random moment", kill_at_random)
    return Act(f"{source.reshards[number]}, then SIGKILL at a random moment", reshard_and_kill(number))


def _after(seconds: float) -> Callable[[], bool]:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline
