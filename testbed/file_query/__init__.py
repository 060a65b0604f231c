"""Queries between folders of files with Spark's own source and sink, in a JVM of their own that can die where it is told to."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from testbed.cache import key_of, made_once, run
from testbed.processes import die_with_parent

_HERE = Path(__file__).parent
_QUERY, _DYING = _HERE / "FileQuery.java", _HERE / "DyingFileManager.java"
OWN_JARS = Path(pyspark.__file__).parent / "jars"
# What Spark's own scripts open of Java 17 (org.apache.spark.launcher.JavaModuleOptions), and a JVM that starts sooner.
_OPENED = ("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
           "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
           "sun.security.action", "sun.util.calendar")  # fmt: skip
_JVM = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "-Xmx700m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)
_SETTINGS = {
    "spark.master": "local[1]",
    "spark.app.name": "file query",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}
_LONGEST_SECONDS = 900


@dataclass(frozen=True)
class Told:
    """What became of one job: the batches that ran to their end with their records, or the ids read; and why it failed."""

    found: str
    error: str | None


def run_jobs(
    jobs: Sequence[Sequence[str | Path]],
    log: Path,
    *,
    spark_jars: Path = OWN_JARS,
    die_before: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> list[Told]:
    """Run jobs one after the other in one JVM, which logs to `log`; see FileQuery.java for what a job is.

    With `die_before` the process dies before it begins the first log file whose path ends so: then there are fewer answers.
    """
    dying = {} if die_before is None else {
        "die.before": die_before, "spark.sql.streaming.checkpointFileManagerClass": _DYING.stem
    }  # fmt: skip
    chosen = {**_SETTINGS, **(settings or {}), **dying, "user.timezone": "UTC"}
    classes = f"{_compiled(spark_jars)}:{spark_jars}/*"
    command = ["java", *_JVM, *(f"-D{name}={value}" for name, value in chosen.items()), "-cp", classes, _QUERY.stem]
    with log.open("ab") as errors:
        ended = subprocess.run(
            command,
            input="".join("\t".join(map(str, job)) + "\n" for job in jobs),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            check=False,
            timeout=_LONGEST_SECONDS,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            preexec_fn=die_with_parent,
        )
    told = [_told(line) for line in ended.stdout.splitlines() if line.startswith("told\t")]
    assert len(told) == len(jobs) or die_before is not None, f"the JVM ended early; see {log}"
    return told


def _told(line: str) -> Told:
    _, outcome, found, *why = [*line.split("\t"), ""]
    return Told(found, why[0] if outcome == "failed" else None)


def _compiled(spark_jars: Path) -> Path:
    """Return the folder of the program's classes, made for one release of Spark; only our own has the one that dies."""
    sources = [_QUERY, _DYING] if spark_jars == OWN_JARS else [_QUERY]

    def make(folder: Path) -> None:
        compiler = shutil.which("javac")
        assert compiler is not None, "javac is not on the PATH: install a JDK"
        run([compiler, "-nowarn", "-cp", f"{spark_jars}/*", "-d", str(folder), *map(str, sources)], "compiling")

    # The jars of a release are told from another's by the name of Spark's own.
    release = next(jar.name for jar in sorted(spark_jars.glob("spark-sql_*.jar")))
    return made_once("file-query", f"{key_of(sources)}-{release}", make, keep=20)
