"""Fetch the exact jars a driver needs, checked against hashes, with the Ivy that pyspark brings.

The lock files name every jar with its SHA-256, so nothing is resolved at run time and a changed file is refused. Ivy
takes them from Maven Central; a file named by EXACTLYONCE_IVY_SETTINGS (an `ivysettings.xml`) points it at a mirror.

    python -m exactlyonce_spark.jars            print the folder, fetching what is missing
    python -m exactlyonce_spark.jars --to DIR   put the jars into DIR (for an image)
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

DRIVER_LOCK = Path(__file__).with_name("jars.lock")
_IVY_TIMEOUT_SECONDS = 1800


class JarsUnavailable(RuntimeError):
    """The jars could not be had: no Java, no network, or a file that is not what the lock says."""


@dataclass(frozen=True)
class Jar:
    """One line of a lock file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name the jar has in the folder."""
        return f"{self.artifact}-{self.version}.jar"


def read_lock(lock: Path) -> list[Jar]:
    """Return the jars that `lock` names: lines of `group:artifact:version sha256`, `#` starts a comment."""
    jars = []
    for line in lock.read_text().splitlines():
        words = line.split("#", 1)[0].split()
        if words:
            group, artifact, version = words[0].split(":")
            jars.append(Jar(group, artifact, version, words[1]))
    return jars


def cache_folder() -> Path:
    """Return where fetched files are kept between runs, outside any source tree."""
    root = os.environ.get("EXACTLYONCE_CACHE") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "exactlyonce"


def ensure_jars(lock: Path = DRIVER_LOCK, report: Callable[[str], None] = lambda line: None) -> Path:
    """Return a folder that holds exactly the jars of `lock`, fetching them once.

    An image has the driver's jars already, and says where in EXACTLYONCE_JARS.

    The folder's name is the hash of the lock, so a changed lock never meets old jars. Fetching goes into a temporary
    folder that is renamed when complete: two processes at once, or one that dies, leave no half-filled folder.

    Raises:
        JarsUnavailable: with one sentence that says what is missing and what to do.
    """
    given = os.environ.get("EXACTLYONCE_JARS")
    if given and lock == DRIVER_LOCK:
        return Path(given)
    name = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    folder = cache_folder() / "jars" / f"{lock.stem}-{name}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
        complete = Path(scratch) / "jars"
        fetch(read_lock(lock), complete, report)
        try:
            complete.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def fetch(jars: list[Jar], folder: Path, report: Callable[[str], None]) -> None:
    """Fetch `jars` into `folder` and check every hash; `report` gets a line for each jar that arrived.

    Raises:
        JarsUnavailable: as `ensure_jars`.
    """
    java = shutil.which("java")
    if java is None:
        raise JarsUnavailable("No `java` on the PATH: install a Java runtime, version 17 or newer, and try again.")
    folder.mkdir(parents=True)
    module = folder.parent / "ivy.xml"
    module.write_text(_ivy_module(jars))
    command = [java, "-jar", str(_ivy_jar()), "-ivy", str(module), "-cache", str(folder.parent / "ivy")]
    command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    settings = os.environ.get("EXACTLYONCE_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    last_lines: list[str] = []
    for line in _lines_of(command):
        last_lines = [*last_lines[-15:], line]
        if "[SUCCESSFUL ]" in line:
            report(line.split("[SUCCESSFUL ]")[1].strip())
    for jar in jars:
        path = folder / jar.file_name
        if not path.exists():
            raise JarsUnavailable(
                f"{jar.group}:{jar.artifact}:{jar.version} could not be fetched from Maven Central: is the network up? "
                "EXACTLYONCE_IVY_SETTINGS can name an ivysettings.xml for a mirror. Ivy's last lines:\n"
                + "\n".join(last_lines)
            )
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != jar.sha256:
            raise JarsUnavailable(f"{jar.file_name} has SHA-256 {found}, the lock says {jar.sha256}: it was not used.")


def _lines_of(command: list[str]) -> Iterator[str]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield line.rstrip()
        process.wait(_IVY_TIMEOUT_SECONDS)


def _ivy_jar() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise JarsUnavailable("pyspark is not installed here: install exactlyonce-operator[driver] first.")
    return next((Path(found.origin).parent / "jars").glob("ivy-*.jar"))


def _ivy_module(jars: list[Jar]) -> str:
    """Return an Ivy file that asks for these very artifacts and nothing they depend on."""
    lines = ['<ivy-module version="2.0"><info organisation="exactlyonce" module="jars"/><dependencies>']
    for jar in jars:
        coordinates = f"org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        artifact = f'<artifact name={quoteattr(jar.artifact)} type="jar" ext="jar"/>'
        lines.append(f'<dependency {coordinates} transitive="false" conf="default->master">{artifact}</dependency>')
    return "\n".join([*lines, "</dependencies></ivy-module>"])


def main() -> int:
    """Run the command line above; 0 when every jar is in place."""
    parser = argparse.ArgumentParser(prog="python -m exactlyonce_spark.jars", description=__doc__.split("\n")[0])
    parser.add_argument("--lock", type=Path, default=DRIVER_LOCK, help="the lock file (default: the driver's jars)")
    parser.add_argument("--to", type=Path, metavar="DIR", help="copy the jars into DIR as well")
    options = parser.parse_args()
    jars = read_lock(options.lock)
    arrived = 0

    def show(line: str) -> None:
        nonlocal arrived
        arrived += 1
        print(f"  [{arrived}/{len(jars)}] {line}", file=sys.stderr, flush=True)

    try:
        folder = ensure_jars(options.lock, show)
    except JarsUnavailable as problem:
        print(problem, file=sys.stderr)
        return 1
    if options.to is not None:
        shutil.copytree(folder, options.to, dirs_exist_ok=True)
        folder = options.to
    print(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
