"""Regenerate tests/golden/spark_versions: the checkpoint and the output of one query, by other releases of Spark.

    python -m scripts.make_golden_spark_versions FOLDER [VERSION...]

FOLDER has a folder for each release, by its version, with the jars of its package: those of `deps/jars` in the archive that
`pip download --no-deps --no-binary :all: pyspark==VERSION` brings. The archives of 2.1 to 2.4 need a constraint `pypandoc<1.8`
in PIP_CONSTRAINT, or pip cannot read them. Each release runs in a process of its own, on the Java that is installed: a release
that does not start there is told, and left as it was. tests/golden/spark_versions/README.md says which ran.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from scripts.make_golden_file_queries import keep, write_source
from testbed.file_query import run_jobs

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "spark_versions"
BATCHES = 3


def main() -> int:
    """Run the query on each release and keep what it left."""
    given = [Path(sys.argv[1]) / version for version in sys.argv[2:]] or sorted(Path(sys.argv[1]).iterdir())
    ran = [_run_any(jars) for jars in given]
    return 0 if all(ran) else 1


def _run_any(jars: Path) -> bool:
    """Run the query with state, or where the release cannot do that on this Java, without."""
    for kind in ("stateful", "plain"):
        with tempfile.TemporaryDirectory() as folder:
            problem = _run(kind, jars, Path(folder))
        print(f"{jars.name}, {kind}: {(problem or 'ran')[-300:]}", flush=True)
        if problem is None:
            return True
    return False


def _run(kind: str, jars: Path, folder: Path) -> str | None:
    """Return why a release did not run to the end; with none, what it left is kept."""
    made, log = folder / "made", folder / "log"
    write_source(made / "source", 0, BATCHES)
    job = (kind, made / "checkpoint", made / "output", made / "source")
    try:
        told = run_jobs([job], log, spark_jars=jars)[0]
    except (AssertionError, RuntimeError) as problem:
        return f"{problem} {log.read_text()[-300:] if log.exists() else ''}"
    if told.error is None:
        keep(made, GOLDEN / jars.name)
    return told.error


if __name__ == "__main__":
    sys.exit(main())
