"""Put everything in place that `make demo` and `make test` need, and say plainly what this machine lacks.

Uses the standard library only, and syntax that a Python too old for the project still reads.
A virtual environment at `.venv` from hashed requirements; Spark's and Kafka's jars in the user's cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
REQUIREMENTS = os.path.join(ROOT, "requirements", "dev.txt")
LOCKS = [
    ("Spark's connector jars", "spark_apps/exactlyonce_spark/jars.lock"),
    ("a Kafka broker", "testbed/kafka-broker.lock"),
    ("a Kinesis Client Library", "testbed/kcl.lock"),
]
OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17


class Lacking(Exception):
    """This machine lacks something; the message says what to do."""


def main() -> int:
    """Check, install, fetch; returns the exit status."""
    started = time.time()
    try:
        check_python()
        check_java()
        make_environment()
        install()
        fetch_jars()
    except Lacking as lack:
        sys.stderr.write(f"\n{lack}\n")
        return 1
    with open(os.path.join(VENV, ".ready"), "w") as stamp:
        stamp.write("ready\n")
    say(f"Everything is in place ({time.time() - started:.0f} s).\n")
    return 0


def check_python() -> None:
    """Refuse a Python older than the project can use, and one without `venv`."""
    if sys.version_info[:2] < OLDEST_PYTHON:
        raise Lacking(
            f"This is Python {sys.version.split()[0]} ({sys.executable}); 3.11 or newer is needed. "
            "Install one, then: make PYTHON=/path/to/python3.12 ..."
        )
    try:
        import ensurepip  # noqa: F401 # Debian ships venv without it, and then venv fails half-way
        import venv  # noqa: F401
    except ImportError:
        raise Lacking(
            f"This Python ({sys.executable}) has no venv module: on Debian and Ubuntu install python3-venv."
        ) from None


def check_java() -> None:
    """Refuse a Java older than Spark 4 and Kafka 4 can use, and its absence."""
    advice = "install a Java runtime, version 17 or newer (on Debian and Ubuntu: openjdk-17-jre-headless)."
    java = shutil.which("java")
    if java is None:
        raise Lacking("There is no `java` on the PATH: " + advice)
    answer = subprocess.run([java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = answer.stdout.decode(errors="replace")
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if answer.returncode or not found:
        raise Lacking(f"`{java} -version` does not answer as Java does: {advice}")
    major = int(found.group(2) or 0) if found.group(1) == "1" else int(found.group(1))
    if major < OLDEST_JAVA:
        raise Lacking(f"`{java}` is Java {major}: {advice}")


def make_environment() -> None:
    """Make `.venv` unless it is there and its Python still runs."""
    python = os.path.join(VENV, "bin", "python")
    if os.path.exists(python) and subprocess.call([python, "-c", "import pip"]) == 0:
        return
    say("Making a virtual environment in .venv")
    if subprocess.call([sys.executable, "-m", "venv", "--clear", VENV]):
        raise Lacking(f"The virtual environment could not be made in {VENV}; the lines above say why.")


def install() -> None:
    """Install what the requirements pin, each checked against its hash, and this project itself."""
    with open(REQUIREMENTS) as file:
        total = sum(1 for line in file if re.match(r"[A-Za-z0-9].*==", line))
    say(f"Installing {total} packages (Spark is 450 MB)")
    pip = [os.path.join(VENV, "bin", "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    run_with_progress([*pip, "--require-hashes", "-r", REQUIREMENTS], total)
    run_with_progress([*pip, "--no-build-isolation", "--no-deps", "--editable", ROOT], 0)


def run_with_progress(command: list[str], total: int) -> None:
    """Run pip, count the packages it comes to, and show its last lines if it fails."""
    log, seen = [], 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert process.stdout is not None
    for line in process.stdout:
        log.append(line)
        word = re.match(r"(Collecting|Requirement already satisfied:) (\S+)", line)
        if total and word:
            seen += 1
            progress(f"  [{min(seen, total)}/{total}] {word.group(2)}")
        elif total and line.startswith(("Building wheels", "Installing collected")):
            progress("  " + line.strip()[:70])
    progress("")
    if process.wait():
        sys.stderr.write("".join(log[-15:]))
        raise Lacking("The packages could not be installed: is the network up? pip's last lines are above.")


def fetch_jars() -> None:
    """Fetch the jars that the lock files name, unless they are in the cache."""
    python = os.path.join(VENV, "bin", "python")
    for what, lock in LOCKS:
        say(f"Jars of {what}")
        command = [python, "-m", "exactlyonce_spark.jars", "--lock", os.path.join(ROOT, lock)]
        if subprocess.call(command, stdout=subprocess.DEVNULL):
            raise Lacking(f"The jars of {what} are missing; the line above says why.")
    say("Archives of Spark's classes and of its Python modules, so that drivers start sooner")
    subprocess.call([python, "-m", "exactlyonce_spark.compiled_archive"], stdout=subprocess.DEVNULL)
    subprocess.call([python, "-m", "exactlyonce_spark.class_archive"], stdout=subprocess.DEVNULL)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def progress(line: str) -> None:
    """Show where a long step is: over itself on a terminal, every line where it is a file."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + line)
        sys.stderr.flush()
    elif line:
        say(line)


if __name__ == "__main__":
    sys.exit(main())
