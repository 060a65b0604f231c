"""`exactlyonce run` as a process: what it prints, how it ends, and that nothing outlives it."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import yaml

from exactlyonce_spark.crash_points import LET_GO, VARIABLE
from tests.command import Command, completing
from tests.rig import Rig, eventually


def test_each_attempt_is_printed_with_its_verdict_and_old_ones_leave_no_folder(rig: Rig) -> None:
    rig.produce(400)
    rig.overrides["spec.history"] = 0
    points = ("driver.claimed", "batch.begun@1")
    crash = {VARIABLE: " ".join(f"{point}=kill-driver,{rig.folder / f'fired-{point}'}" for point in points)}
    command = completing(rig, environment=crash)
    told = [(kind, words.split(":")[0]) for kind, words in command.events() if kind != "Landed"]
    assert told == [
        ("FirstStart", "Attempt 1"),
        ("Died", "Attempt 1 ended"),
        ("SkipLanded", "Attempt 2"),
        ("Died", "Attempt 2 ended"),
        ("ReplayBatch", "Attempt 3"),
        ("Completed", "Attempt 3 ended"),
    ]
    attempts = rig.folder / "state" / f"tests.{rig.name}" / "attempts"
    assert {folder.name for folder in attempts.iterdir()} == {"attempt-000002", "attempt-000003"}, (
        "the writer's was asked"
    )
    assert "without a last message; its log is" in command.told("Died")[0]
    assert "Batch 1 was planned and has not landed" in command.told("ReplayBatch")[0]
    rig.assert_exactly_once()


def test_ctrl_c_drains_and_leaves_no_process_and_a_second_run_waits_its_turn(rig: Rig) -> None:
    rig.produce(400)
    with Command(rig) as first:
        first.wait_until_landed()
        before = rig.sql("select epoch, claim from exactlyonce.streams")
        with Command(rig, alone=False) as second:
            assert second.wait() == 1
        home = rig.folder / "state" / f"tests.{rig.name}"
        assert second.output == f"Another process runs this stream from {home}; end that one first.\n"
        assert rig.sql("select epoch, claim from exactlyonce.streams") == before, "it did not touch the stream"

        rig.produce(400)
        first.wait_until_landed()
        assert first.drivers() != []
        assert first.interrupt() == 0
        assert first.drivers() == []
        assert first.told("Drained") == ["Attempt 1 ended: The driver ended after the current batch, as requested."]
        assert first.status()["phase"] == "Suspended"
    rig.assert_exactly_once()
    assert rig.sql("select writer_released from exactlyonce.streams") == [(True,)]

    rig.produce(400)
    third = completing(rig)
    assert [kind for kind, _ in third.events() if kind != "Landed"] == ["Resume", "Completed"]
    rig.assert_exactly_once()


def test_a_second_ctrl_c_ends_a_batch_that_takes_too_long(rig: Rig) -> None:
    rig.produce(400)
    held = rig.folder / "fired"
    with Command(rig, environment={VARIABLE: f"land.before-commit@1=hold,{held}"}) as command:
        eventually(held.exists, "the batch is about to commit", 120)
        command.signal(signal.SIGINT)
        command.wait_for("Draining")
        assert command.drivers() != []
        command.signal(signal.SIGINT)
        assert command.wait() == 0, command.output
        assert command.drivers() == []
    assert rig.landed() == 0, "it was rolled back"
    completing(rig)
    rig.assert_exactly_once()


def test_a_command_that_was_killed_is_followed_by_one_that_goes_on(rig: Rig) -> None:
    """Its driver is in the middle of a batch, and drains because it has lost its parent."""
    rig.produce(400)
    held = rig.folder / "fired"
    with Command(rig, environment={VARIABLE: f"land.before-commit@1=hold,{held}"}) as first:
        eventually(held.exists, "the batch is about to commit", 120)
        first.signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
        orphans = first.drivers()
        assert orphans != []
        assert rig.landed() == 0
        lock = rig.folder / "state" / f"tests.{rig.name}" / "running.lock"
        assert not is_held(lock)
        with Command(rig, alone=False) as second:
            eventually(lambda: is_held(lock), "the second one has taken over")
            (rig.folder / f"fired{LET_GO}").touch()
            second.wait_until_landed()
            second.wait_for("Drained")
            assert not psutil.wait_procs(orphans, timeout=30)[1]
            rig.produce(400)
            second.wait_until_landed()
            assert second.interrupt() == 0
            assert second.drivers() == []
        # On a busy machine Spark may not have written the end of the batch that landed (SETTLING_SECONDS).
        continues = ("FirstStart", "Resume", "SkipLanded", "RebuildFromSink")
        assert [kind for kind, _ in second.events() if kind in continues] in (["Resume"], ["SkipLanded"])
    rig.assert_exactly_once()


def test_what_cannot_be_started_is_one_sentence_and_status_1(rig: Rig) -> None:
    file = rig.folder / "stream.yaml"
    file.write_text(yaml.safe_dump(rig.document({"spec.checkpoint.local.path": "relative"})))
    assert refused("run", file).startswith(f"{file}: spec.checkpoint.local.path: 'relative' will not do; write")
    file.write_text(yaml.safe_dump(rig.document()))
    unusable = f"The state folder {file / f'tests.{rig.name}'} cannot be used (Not a directory); name one"
    for command in ("run", "explain"):
        assert "no-such.yaml: the file cannot be read (No such file or directory)" in refused(command, "no-such.yaml")
        assert refused(command, file, "--name", "another").endswith("choose one with --name.")
        assert "Secret warehouse is not there: make the folder" in refused(command, file, "--secrets", "nowhere")
        assert unusable in refused(command, file, "--secrets", rig.secrets, "--state", file)


def is_held(lock: Path) -> bool:
    """Whether a process holds this file's lock."""
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def refused(*arguments: str | Path) -> str:
    """Return the one sentence that a command prints as its error."""
    command = [sys.executable, "-m", "exactlyonce.cli.main", *(str(argument) for argument in arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    return line
