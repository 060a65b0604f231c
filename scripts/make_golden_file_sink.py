"""Regenerate tests/golden/file_sink: what Spark's own file sink writes to `_spark_metadata`, from a real run.

    python -m scripts.make_golden_file_sink

A query of BATCHES batches, one file of JSON lines each, lands as Parquet. Its log is recorded as it is, except that the folder
it ran in is named file:///output: no file of the repository names a folder of the machine.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from testbed.spark import local_session

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "file_sink"
BATCHES = 22
"""Enough for two compactions and entries after the latter."""


def main() -> None:
    """Run the query and record its log."""
    with tempfile.TemporaryDirectory() as folder, local_session("golden file sink") as session:
        source, output = Path(folder, "source"), Path(folder, "output")
        source.mkdir()
        for number in range(BATCHES):
            Path(source, f"{number:02}.json").write_text(f'{{"id": {number}}}\n')
        rows = session.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source))
        writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        writer.trigger(availableNow=True).start(str(output)).awaitTermination()
        shutil.rmtree(GOLDEN, ignore_errors=True)
        GOLDEN.mkdir(parents=True)
        for path in sorted(output.joinpath("_spark_metadata").iterdir()):
            if not path.name.startswith("."):
                text = path.read_text().replace(f"file://{output}", "file:///output")
                GOLDEN.joinpath(path.name).write_text(text)


if __name__ == "__main__":
    main()
