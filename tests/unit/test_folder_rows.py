"""Lines of files as the rows that Spark gets, and how files are shared out among tasks."""

from __future__ import annotations

from exactlyonce.connectors.files.source_position import NOTHING_READ, after
from exactlyonce_spark.connectors.files.source_rows import (
    POSITION_DIGITS,
    Taken,
    arrow_batches,
    placed,
    shared_out,
)
from tests.decoders import BYTES, NOTHING
from tests.folder_in_memory import MemoryFolder, source_file

FILES = [source_file(f"{number}", number, 100 - number) for number in range(7)]


def test_each_line_has_a_position_of_its_own_within_the_range_of_its_file() -> None:
    folder = MemoryFolder(lines_each=3000)
    folder.put(*FILES[:3])

    rows = [
        row
        for batch in arrow_batches(folder, "/incoming", placed(NOTHING_READ, FILES[:3]), Taken(), BYTES, NOTHING)
        for row in batch.to_pylist()
    ]

    assert [(row["file"], row["line"]) for row in rows] == [
        (f"{file}", line) for file in range(3) for line in range(1, 3001)
    ]
    assert {len(row["position"]) for row in rows} == {POSITION_DIGITS}
    positions = [int(row["position"]) for row in rows]
    assert positions == sorted(set(positions))
    ends = [after(NOTHING_READ, FILES[:number]) for number in range(4)]
    for row, position in zip(rows, positions, strict=True):
        file = int(row["file"])
        assert ends[file] < position < ends[file + 1]
    assert rows[0]["modification_time"].timestamp() == 0
    assert (rows[0]["folder"], rows[0]["partition"], rows[0]["value"]) == ("/incoming", 0, {"value": b"0 0"})


def test_no_batch_of_rows_is_larger_than_a_task_holds_easily() -> None:
    folder = MemoryFolder(lines_each=4500)
    folder.put(FILES[0])

    sizes = [
        batch.num_rows for batch in arrow_batches(folder, "x", placed(NOTHING_READ, FILES[:1]), Taken(), BYTES, NOTHING)
    ]

    assert sizes == [2000, 2000, 500]


def test_every_file_has_one_task_and_no_task_much_more_than_another() -> None:
    files = placed(NOTHING_READ, FILES)

    for tasks in (1, 2, 3, 7, 20):
        shares = shared_out(files, tasks)

        assert sorted(each.position for share in shares for each in share) == [each.position for each in files]
        assert len(shares) == min(tasks, len(files))
        assert all(list(share) == sorted(share, key=lambda each: each.position) for share in shares)
        sizes = [sum(each.file.size_bytes for each in share) for share in shares]
        assert max(sizes) - min(sizes) <= 101
