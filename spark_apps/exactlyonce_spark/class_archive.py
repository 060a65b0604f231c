"""Start a driver's JVM sooner: an archive of the classes that a driver loads, made once and mapped at each start.

The JVM's own class data sharing (JEP 350): it checks that Java and every jar are what they were, and continues without the
archive where they are not. A driver that comes back sooner is lag that does not build up.

`python -m exactlyonce_spark.class_archive` makes the archive unless it is there, and prints where it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from exactlyonce.connectors.registry import SOURCES
from exactlyonce_spark.assembly import connector_of_source
from exactlyonce_spark.jars import cache_folder, ensure_jars

VARIABLE = "EXACTLYONCE_CLASS_ARCHIVE"
"""The environment variable by which an image says where its archive is."""

LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""For the short-lived JVM in which Spark's launcher puts the command together: compile little, one collector thread."""

_TRAINING_SECONDS = 900
_KEPT = 4


def archive_path() -> Path:
    """Return where the archive is, or will be, for this Java, this Spark and these jars."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    import pyspark

    inputs = [_java(), *_jars(Path(pyspark.__file__).parent / "jars"), *_jars(ensure_jars())]
    seal = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
    return cache_folder() / "classes" / f"driver-{seal}.jsa"


def java_options() -> str:
    """Return the JVM options that use the archive; none where there is none, and never an error."""
    with contextlib.suppress(OSError, RuntimeError):
        archive = archive_path()
        if archive.exists():
            return f"-XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr"
    return ""


def make_archive() -> Path:
    """Make the archive unless it is there: a small job runs in a JVM that archives its classes when it ends."""
    archive = archive_path()
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".make-") as scratch:
        made = Path(scratch) / "classes.jsa"
        command = [sys.executable, "-m", "exactlyonce_spark.class_archive", "--train", str(made)]
        subprocess.run(
            command, check=True, timeout=_TRAINING_SECONDS, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        made.rename(archive)
    _prune(archive.parent)
    return archive


def _jars(folder: Path) -> list[str]:
    """Return what the JVM will hold an archive against: the path, size and time of each jar.

    A virtual environment that is recreated has the same jars with other times, and its archive is another one.
    """
    found = sorted((jar, jar.stat()) for jar in folder.glob("*.jar"))
    return [f"{jar} {stat.st_size} {stat.st_mtime_ns}" for jar, stat in found]


def _prune(folder: Path) -> None:
    """Remove all but the archives made last: those of environments that are gone fit nothing any more."""
    made = sorted(folder.glob("driver-*.jsa"), key=lambda archive: archive.stat().st_mtime_ns, reverse=True)
    for archive in made[_KEPT:]:
        archive.unlink(missing_ok=True)


def _java() -> str:
    """Return what tells one Java from another: where its program is, its size and its time."""
    program = shutil.which("java")
    if program is None:
        raise FileNotFoundError("java")
    library = Path(program).resolve().parent.parent / "lib" / "modules"
    found = library.stat()
    return f"{library} {found.st_size} {found.st_mtime_ns}"


def _train(archive: Path) -> None:
    """Load the classes that a driver needs for its first batches, then let the JVM write them."""
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = ensure_jars()
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraClassPath", f"{jars}/*")
        .config("spark.driver.extraJavaOptions", f"-XX:ArchiveClassesAtExit={archive}")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.adaptive.enabled", "false")
        .getOrCreate()
    )
    fields = "id BIGINT, customer STRING, amount DECIMAL(12,2), ts TIMESTAMP"
    record = """'{"id":1,"customer":"a","amount":"1.50","ts":"2026-01-02T03:04:05Z"}'"""

    def take(batch: DataFrame, _number: int) -> None:
        batch.collect()
        batch.mapInArrow(lambda inputs: inputs, batch.schema).count()

    with tempfile.TemporaryDirectory() as scratch:
        rows = session.readStream.format("rate").option("rowsPerSecond", 10).load()
        rows = rows.selectExpr(f"from_json({record}, '{fields}', map('mode', 'PERMISSIVE')) as row").select("row.*")
        query = rows.writeStream.foreachBatch(take).option("checkpointLocation", scratch).trigger(once=True).start()
        query.awaitTermination()
    for name in SOURCES:
        with contextlib.suppress(PySparkException, Py4JJavaError):  # no one answers there
            connector_of_source(name).load_classes(session)
    gateway: Any = SparkContext._gateway
    session.stop()
    gateway.proc.stdin.close()  # the JVM ends with its standard input, and writes the archive before it is gone
    gateway.proc.wait(_TRAINING_SECONDS)


def main() -> int:
    """Make the archive, or train for it."""
    if sys.argv[1:2] == ["--train"]:
        _train(Path(sys.argv[2]))
        return 0
    try:
        print(make_archive())
    except (OSError, subprocess.SubprocessError) as problem:
        said = getattr(problem, "stderr", b"") or b""
        print(f"The class archive could not be made ({problem}); drivers start without it.", file=sys.stderr)
        print(said.decode(errors="replace")[-1000:], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
