"""`make soak KILLS=1000`: one stream a commit mode, killed at random as often as asked, ids counted at the end.

It shows its progress, prints the histogram of where it killed, and exits with status 1 if a record is lost or doubled.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.random_kills import BATCH, RandomKills
from tests.rig import Rig


def main() -> int:
    """Run the soak that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="over both modes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeats a run")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exactlyonce-soak-")))
        postgres = stack.enter_context(Postgres(folder / "postgres"))
        kafka = stack.enter_context(Kafka(folder / "kafka"))
        wrong = 0
        for commit in ("Batch", "Partition"):
            home = folder / commit
            home.mkdir()
            rig = Rig(kafka, postgres, home, f"soak-{commit.lower()}", {"spec.sink.postgres.commit": commit})
            rig.produce(20 * BATCH)
            wrong += _soak(RandomKills(rig, options.kills // 2, options.seed, _show), commit)
    return 1 if wrong else 0


def _soak(kills: RandomKills, commit: str) -> int:
    try:
        kills.run()
        kills.rig.assert_exactly_once()
    except AssertionError as problem:
        print(f"\ncommit: {commit}: {problem}\nAgain: --kills {2 * kills.kills} --seed {kills.seed}")
        return 1
    ids = len(kills.rig.produced)
    print(f"\ncommit: {commit}: {ids} ids, 0 lost, 0 doubled. {kills.histogram()}", flush=True)
    return 0


def _show(line: str) -> None:
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"  {line}", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
