"""Doris' own Spark connector on the Spark that it is made for, in a JVM of its own: a client that nobody here wrote."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from exactlyonce_spark import jars
from testbed.cache import key_of, made_once, run
from testbed.processes import die_with_parent

CONNECTOR_LOCK = Path(__file__).with_name("doris-connector.lock")
_PROGRAM = Path(__file__).with_name("DorisConnectorJobs.java")
# What Spark's own scripts open of Java 17 (org.apache.spark.launcher.JavaModuleOptions), and a JVM that starts sooner.
_OPENED = ("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
           "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action",
           "sun.util.calendar")  # fmt: skip
_JVM = [*(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED), "-Xmx700m", "-XX:+UseSerialGC"]
_QUICK = ["-XX:TieredStopAtLevel=1"]


@dataclass
class DorisConnector:
    """A JVM that runs jobs one after the other; it logs to `log`. `table` is database.table at a frontend, as host:port.

    `quick` compiles less, which is right for a test and wrong for a benchmark.
    """

    log: Path
    frontend: str
    user: str
    password: str = field(repr=False)
    quick: bool = True

    def __enter__(self) -> Self:
        classes = f"{_compiled()}:{jars.ensure_jars(CONNECTOR_LOCK)}/*"
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                ["java", *_JVM, *(_QUICK if self.quick else []), "-cp", classes, _PROGRAM.stem],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                preexec_fn=die_with_parent,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()

    def append(
        self,
        table: str,
        options: Mapping[str, str],
        rows: int,
        tasks: int = 2,
        fails_at: int = -1,
        select: str = "SELECT once(id) AS id, concat('note ', id) AS note FROM ids",
    ) -> str:
        """Append what `select` makes of the ids 0 to `rows` - 1; return "done", or "failed" and why.

        Its function `once` fails for the id `fails_at` in the first run of a task. `options` are the connector's, by name.
        """
        job = {"rows": str(rows), "tasks": str(tasks), "fails_at": str(fails_at), "select": select}
        return self._told(job, table, options)

    def stream(self, table: str, options: Mapping[str, str], folder: Path, checkpoint: Path) -> str:
        """Write the JSON lines of a folder as a structured stream, until nothing is left; return as `append` does."""
        return self._told({"input": str(folder), "checkpoint": str(checkpoint)}, table, options)

    def _told(self, job: Mapping[str, str], table: str, options: Mapping[str, str]) -> str:
        login = {"doris.fenodes": self.frontend, "doris.user": self.user, "doris.password": self.password}
        named = {**job, **login, "doris.table.identifier": table, **options}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(f"{name}={value}" for name, value in named.items()) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip()
        assert answer, f"the JVM of Doris' connector has ended; see {self.log}"
        return answer


def _compiled() -> Path:
    """Return the folder of the program's classes: what Spark serializes cannot be loaded from a source that is launched."""

    def make(folder: Path) -> None:
        compiler = shutil.which("javac")
        assert compiler is not None, "javac is not on the PATH: install a JDK"
        jars_of = f"{jars.ensure_jars(CONNECTOR_LOCK)}/*"
        run([compiler, "-cp", jars_of, "-d", str(folder), str(_PROGRAM)], "compiling for Doris' connector")

    return made_once("doris-connector", key_of([_PROGRAM, CONNECTOR_LOCK]), make)
