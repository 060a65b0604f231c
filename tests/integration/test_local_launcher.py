"""Drivers as processes of this machine: started once, found again by anyone, dead only when nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from exactlyonce.launch.driver_document import DriverDocument
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.local import MARKER, LocalLauncher, Unresponsive
from exactlyonce.launch.port import Ended, Gone, NeverStarted, Running
from exactlyonce.positions.ranges import Epoch
from tests.command import files_that_hold
from tests.ledger_processes import process
from tests.rig import Rig, eventually
from tests.stand_in import PYTHONPATH

ONE = Epoch(1)
LONG_SECONDS, SHORT_SECONDS = 600.0, 2.0


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[LocalLauncher]:
    """A launcher of stand-ins for a driver; nothing of them is left after the test."""
    made = LocalLauncher(
        folder=tmp_path / "attempts",
        document=DriverDocument("tests/orders", {}, "local[1]"),
        secrets=tmp_path / "secrets",
        run_id=str(tmp_path),
        unresponsive_seconds=LONG_SECONDS,
    )
    doing(made)
    yield made
    for left in marked(made):
        left.kill()


def doing(launcher: LocalLauncher, *words: str) -> LocalLauncher:
    """Have the next stand-in do what the words say."""
    launcher.environment = {"PYTHONPATH": PYTHONPATH, "STAND_IN": " ".join(words)}
    return launcher


def another(launcher: LocalLauncher, *, read_only: bool = False) -> LocalLauncher:
    """The launcher of another process with the same state folder: it has started nothing itself."""
    return replace(launcher, read_only=read_only, _children={})


def begun(launcher: LocalLauncher, attempt: Epoch = ONE) -> psutil.Process:
    """Start a stand-in and wait until it runs; return its main process."""
    launcher.start(attempt)
    home = launcher.log_of(attempt).parent
    eventually((home / "begun").exists, "the stand-in runs")
    return psutil.Process(launcher._children[attempt].pid)


def marked(launcher: LocalLauncher) -> list[psutil.Process]:
    """Every process that carries a marker of this launcher's stream, as this test reads the process table."""
    found = []
    for candidate in psutil.process_iter():
        try:
            if candidate.environ().get(MARKER, "").startswith(f"{launcher.run_id}/"):
                found.append(candidate)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def test_an_attempt_without_a_trace_was_never_started(launcher: LocalLauncher) -> None:
    assert launcher.state_of(ONE) == NeverStarted()


def test_the_latest_attempt_that_left_a_trace_is_known_to_every_launcher(launcher: LocalLauncher) -> None:
    assert launcher.latest() == 0
    begun(launcher)
    begun(launcher, Epoch(12))
    (launcher.folder / "attempt-of-something-else").mkdir()
    for looking in (launcher, another(launcher), another(launcher, read_only=True)):
        assert looking.latest() == Epoch(12)


def test_a_driver_that_runs_is_found_by_every_launcher_and_started_once(launcher: LocalLauncher) -> None:
    begun(launcher)
    for looking in (launcher, another(launcher), another(launcher, read_only=True)):
        assert isinstance(looking.state_of(ONE), Running)
        looking.start(ONE)
    assert len(marked(launcher)) == 1, "one that is there already is left as it is"
    assert launcher.log_of(ONE).read_text() == "the stand-in has begun\n"
    assert (launcher.log_of(ONE).parent / "spec.json").read_text() == launcher.document.render()


def test_a_driver_is_found_from_the_very_moment_of_its_start(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of an exec(2) a process shows no environment, so no marker; the process table is read at once."""
    looking = another(launcher, read_only=True)
    for attempt in map(Epoch, range(1, 31)):
        launcher.start(attempt)
        table = [psutil.Process(launcher._children[attempt].pid)]
        monkeypatch.setattr(psutil, "process_iter", lambda table=table: iter(table))
        assert isinstance(looking.state_of(attempt), Running)
        launcher.kill(attempt)


def test_attempts_and_streams_are_told_apart(launcher: LocalLauncher) -> None:
    begun(launcher)
    begun(launcher, Epoch(2))
    launcher.kill(ONE)
    eventually(lambda: isinstance(launcher.state_of(ONE), Ended), "attempt 1 has ended")
    assert isinstance(launcher.state_of(Epoch(2)), Running)
    elsewhere = replace(another(launcher), run_id=f"{launcher.run_id}-of-another-stream")
    elsewhere.kill(Epoch(2))
    assert isinstance(elsewhere.state_of(Epoch(2)), Ended), "no process carries the other stream's marker"
    assert isinstance(launcher.state_of(Epoch(2)), Running), "and this one's was not touched"


@pytest.mark.parametrize("mine", [True, False], ids=["by its launcher", "by another one"])
def test_a_driver_that_is_drained_leaves_its_last_message(launcher: LocalLauncher, mine: bool) -> None:
    main = begun(launcher)
    draining = launcher if mine else another(launcher)
    draining.drain(ONE)
    draining.drain(ONE)
    launcher.wait(ONE, 60)
    assert not main.is_running() or main.status() == psutil.STATUS_ZOMBIE
    state = draining.state_of(ONE)
    assert isinstance(state, Ended)
    assert state.words == LastMessage(Ending.DRAINED, "epoch 1 was asked to end")
    assert state.proof == "no process of attempt 1 is left on this machine"
    draining.drain(ONE)


def test_a_driver_that_died_without_last_message_is_told_by_its_status(launcher: LocalLauncher) -> None:
    begun(launcher)
    launcher.kill(ONE)
    launcher.wait(ONE, 60)
    state = launcher.state_of(ONE)
    log = launcher.log_of(ONE)
    assert isinstance(state, Ended)
    assert state.words is None
    assert state.detail == f"it was killed (status -9) without a last message; its log is {log}"

    doing(launcher, "die").start(Epoch(2))
    launcher.wait(Epoch(2), 60)
    state = launcher.state_of(Epoch(2))
    assert isinstance(state, Ended)
    assert "it ended (status 7) without a last message" in state.detail


@pytest.mark.parametrize("orphan", ["orphan", "orphan-in-its-own-session"])
@pytest.mark.parametrize("who", ["its launcher", "another one", "one that only looks"])
def test_its_death_is_proven_only_when_nothing_of_it_is_left(launcher: LocalLauncher, orphan: str, who: str) -> None:
    """A driver's JVM, its workers and whatever they start carry the marker too, and may still write."""
    begun(doing(launcher, orphan))
    launcher._children[ONE].terminate()
    launcher.wait(ONE, 60)
    assert len(marked(launcher)) == 1, "the orphan has outlived the driver"
    looking = {
        "its launcher": launcher,
        "another one": another(launcher),
        "one that only looks": another(launcher, read_only=True),
    }[who]
    state = looking.state_of(ONE)
    if isinstance(state, Ended):
        assert marked(launcher) == [], "whoever says that it has ended has seen to it"
        assert state.words is not None
    else:
        assert marked(launcher) != []
    if who == "its launcher":
        assert isinstance(state, Ended)
    if who == "one that only looks":
        assert not isinstance(state, Ended)


def frozen(launcher: LocalLauncher) -> psutil.Process:
    """A driver that was running and is stopped, with a patience that it soon exceeds."""
    main = begun(launcher)
    launcher.kill(ONE, signal.SIGSTOP)
    eventually(lambda: launcher.is_stopped(ONE), "it is frozen")
    launcher.unresponsive_seconds = SHORT_SECONDS
    return main


def test_a_frozen_driver_is_killed_once_its_patience_is_over(launcher: LocalLauncher) -> None:
    main = frozen(launcher)
    eventually(lambda: not isinstance(launcher.state_of(ONE), Running), "it counts as frozen")
    assert not main.is_running() or main.status() == psutil.STATUS_ZOMBIE
    state = launcher.state_of(ONE)
    assert isinstance(state, Ended)
    assert state.words is None


def test_a_driver_that_answers_is_left_alone_however_long_it_runs(launcher: LocalLauncher) -> None:
    begun(launcher)
    heartbeat = launcher.log_of(ONE).parent / "heartbeat"
    first = heartbeat.stat().st_mtime
    eventually(lambda: heartbeat.stat().st_mtime > first + SHORT_SECONDS, "it has beaten for longer than the patience")
    launcher.unresponsive_seconds = LONG_SECONDS
    assert isinstance(launcher.state_of(ONE), Running)


def test_a_driver_that_never_gave_a_sign_counts_from_its_start(launcher: LocalLauncher) -> None:
    begun(doing(launcher, "silent"))
    assert isinstance(launcher.state_of(ONE), Running)
    launcher.unresponsive_seconds = SHORT_SECONDS
    eventually(lambda: isinstance(launcher.state_of(ONE), Ended), "it was given up")
    assert marked(launcher) == []


def test_a_frozen_driver_that_is_abandoned_stays_as_it_is_and_never_counts_as_dead(launcher: LocalLauncher) -> None:
    launcher.unresponsive = Unresponsive.ABANDON
    main = frozen(launcher)
    eventually(lambda: isinstance(launcher.state_of(ONE), Gone), "it is given up")
    assert launcher.is_stopped(ONE), "nothing was done to it"
    launcher.unresponsive_seconds = LONG_SECONDS
    assert isinstance(another(launcher).state_of(ONE), Gone)
    launcher.kill(ONE, signal.SIGCONT)
    eventually(lambda: main.status() != psutil.STATUS_STOPPED, "it continues")
    assert isinstance(launcher.state_of(ONE), Gone), "one that was given up once is not trusted again"
    main.kill()
    launcher._children[ONE].wait(60)
    assert isinstance(launcher.state_of(ONE), Ended), "only now its death is proven"


def test_a_driver_is_not_given_up_when_the_clock_jumps(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a laptop wakes: by the clock of the wall no beat has come for an hour, and the next one is on its way."""
    main = begun(launcher)
    heartbeat = launcher.log_of(ONE).parent / "heartbeat"
    launcher.unresponsive_seconds = 60.0
    at, clock = heartbeat.stat().st_mtime, time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 3600)
    assert isinstance(launcher.state_of(ONE), Running)
    eventually(lambda: heartbeat.stat().st_mtime != at, "one more beat has come")
    monkeypatch.setattr(time, "time", clock)
    assert isinstance(launcher.state_of(ONE), Running)
    assert main.is_running()


def test_folders_of_old_attempts_are_removed_but_for_the_last_the_writers_and_those_that_run(
    launcher: LocalLauncher,
) -> None:
    begun(launcher, Epoch(2))
    for attempt in (1, 3, 4, 5, 6):
        launcher.log_of(Epoch(attempt)).parent.mkdir()
    launcher.clean_up(Epoch(1), keep=2)
    assert sorted(folder.name for folder in launcher.folder.iterdir()) == [
        f"attempt-00000{attempt}" for attempt in (1, 2, 5, 6)
    ]
    launcher.kill(Epoch(2))
    eventually(lambda: isinstance(launcher.state_of(Epoch(2)), Ended), "attempt 2 has ended")
    launcher.clean_up(None, keep=0)
    assert [folder.name for folder in launcher.folder.iterdir()] == ["attempt-000006"], "the next number is known by it"


def test_who_only_looks_at_a_frozen_driver_changes_nothing(launcher: LocalLauncher) -> None:
    frozen(launcher)
    looking = another(launcher, read_only=True)
    eventually(lambda: isinstance(looking.state_of(ONE), Gone), "it counts as frozen")
    assert launcher.is_stopped(ONE)
    assert not (launcher.log_of(ONE).parent / "abandoned").exists()


def test_a_driver_whose_launcher_was_killed_is_found_and_not_started_again(launcher: LocalLauncher) -> None:
    with process(start_and_die, launcher) as (dead, _):
        dead.join(60)
        assert dead.exitcode == -signal.SIGKILL
    home = launcher.log_of(ONE).parent
    eventually((home / "begun").exists, "the driver has outlived its launcher")
    next_one = another(launcher)
    assert isinstance(next_one.state_of(ONE), Running)
    next_one.start(ONE)
    assert len(marked(launcher)) == 1
    next_one.drain(ONE)
    eventually(lambda: isinstance(next_one.state_of(ONE), Ended), "it has drained")


def test_a_launcher_killed_before_it_started_the_driver_leaves_an_attempt_that_is_over(launcher: LocalLauncher) -> None:
    """The next attempt has the next number: nobody can tell whether the driver had already claimed its epoch."""
    with process(die_before_the_start, launcher) as (dead, _):
        dead.join(60)
        assert dead.exitcode == -signal.SIGKILL
    next_one = another(launcher)
    state = next_one.state_of(ONE)
    assert isinstance(state, Ended)
    assert state.words is None
    next_one.start(ONE)
    assert marked(launcher) == []


def start_and_die(_: Connection, launcher: LocalLauncher) -> None:
    launcher.start(ONE)
    os.kill(os.getpid(), signal.SIGKILL)


def die_before_the_start(_: Connection, launcher: LocalLauncher) -> None:
    subprocess.Popen = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[misc, assignment]
    launcher.start(ONE)


def test_a_driver_that_ends_while_it_is_looked_at_does_not_disturb(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(launcher)
    looking = another(launcher)
    child = launcher._children[ONE]

    def ends_first(ask: Callable[[int], int]) -> Callable[[int], int]:
        def asked(pid: int) -> int:
            child.kill()
            child.wait(60)
            return ask(pid)

        return asked

    monkeypatch.setattr(os, "getsid", ends_first(os.getsid))
    assert isinstance(looking.state_of(ONE), Ended)


def test_no_secret_is_on_a_command_line_or_in_a_file_of_the_driver(rig: Rig) -> None:
    """The real driver, which ends before it has started Spark because the password is wrong."""
    rig.write_secret(password="canary-of-nobody")
    opened = rig.open()
    opened.launcher.start(ONE)
    driver = psutil.Process(opened.launcher._children[ONE].pid)
    eventually(lambda: bool(driver.cmdline()), "the driver shows its command line")
    shown = [*driver.cmdline(), *driver.environ().values()]
    assert str(rig.secrets) in shown, "the driver is told where the secrets are"
    assert [text for text in shown if "canary" in text] == []
    eventually(lambda: isinstance(opened.launcher.state_of(ONE), Ended), "the driver has ended", 120)
    state = opened.launcher.state_of(ONE)
    assert isinstance(state, Ended)
    assert state.words is not None
    assert state.words.ending is Ending.REFUSED
    assert "password authentication failed" in state.words.message
    assert files_that_hold("canary", rig.secrets), "the search finds it where it belongs"
    assert files_that_hold("canary", rig.folder / "state") == []
