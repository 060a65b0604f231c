"""What Spark's own file source does with the faults that `source.files` names or survives: docs/comparison.md has the table."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

from testbed.spark import local_session
from tests.combinations import only_in_full

NOW, EIGHT_DAYS = 1_700_000_000, 8 * 86_400


def put(path: Path, content: str, seconds: int) -> None:
    path.write_text(content)
    os.utime(path, (seconds, seconds))


@only_in_full  # a claim about another program; ours: test_folder_stream.py, tests/unit/test_folder_planner.py
def test_sparks_own_source_passes_over_new_lines_and_old_files_without_a_word_and_reads_twice_what_its_checkpoint_lost(
    tmp_path: Path,
) -> None:
    incoming, checkpoint = tmp_path / "incoming", tmp_path / "checkpoint"
    incoming.mkdir()
    taken: Counter[str] = Counter()
    with local_session("Spark's own file source") as session:

        def run() -> None:
            lines = session.readStream.format("text").load(str(incoming))
            writing = lines.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
            query = writing.foreachBatch(lambda rows, _batch: taken.update(row.value for row in rows.collect())).start()
            query.awaitTermination()

        put(incoming / "a.txt", "1\n2\n", NOW)
        run()
        put(incoming / "a.txt", "1\n2\n3\n", NOW + 10)
        put(incoming / "late.txt", "4\n", NOW - EIGHT_DAYS)
        put(incoming / "b.txt", "5\n", NOW + 20)
        run()
        assert taken == Counter("125"), "neither the line that was added nor the file that came late"
        shutil.rmtree(checkpoint)
        run()

    assert {line: taken[line] for line in "12345"} == {"1": 2, "2": 2, "3": 1, "4": 1, "5": 2}
