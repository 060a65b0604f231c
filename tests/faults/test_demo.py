"""`make demo SOURCE=kinesis SINK=files` as a person runs it (make test-full); its parts: tests/unit/test_demo.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from demo.sources import KinesisStream
from tests.combinations import only_in_full

ROOT = Path(__file__).parents[2]


@only_in_full  # the same strikes, counted by ids: test_kinesis_strikes.py and, fewer, tests/integration/test_kinesis_stream.py
def test_the_demo_from_kinesis_to_files_comes_to_its_end_and_each_reader_counts_every_order_once() -> None:
    command = [sys.executable, "-m", "demo", "--source", "kinesis", "--sink", "files"]  # what make calls: test_demo.py
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-5000:]
    assert "Every order took effect exactly once." in ran.stdout
    counted = re.findall(r"distinct ids +([\d,]+) of ([\d,]+)", ran.stdout)
    assert counted == [(f"{KinesisStream.orders:,}",) * 2] * 2, "by pyarrow and by Spark"
