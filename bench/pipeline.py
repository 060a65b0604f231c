"""`make bench`: what exactly once costs. Prints a table and writes bench/out/pipeline.json.

Every ratio compares figures of the same run. Goals: Partition at least 0.75 of (c) and 1.2 times (d); Batch at least 0.65 of
(c) and not slower than (d); a tiny batch not above (d)'s; start and restart at most 1.1 times a bare job; files at least
0.95 of a plain df.write.parquet of the same rows, a tiny batch at most 50 ms above it; a Delta or Iceberg table at least
0.95 of the libraries' own appends; a Kafka topic at least 0.75 of the rows that plain Spark writes for a core-second;
reconciliation below 300 ms.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.figures import Figure, table, write
from bench.files import files_sink, object_log
from bench.restarts import reconciliation, restarts
from bench.setup import Setup
from bench.tables import DELTA, ICEBERG, KAFKA, table_sink
from bench.throughput import throughput, tiny_batches
from testbed.kafka import Kafka
from testbed.postgres import Postgres

# A database as it is set up for loads of this size; durability stays on.
POSTGRES = {"shared_buffers": "1GB", "max_wal_size": "8GB", "max_connections": "200"}


def main() -> int:
    """Run the parts that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=2_500_000, help="of the throughput part (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=500_000, help="records per batch (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each contender (default: %(default)s)")
    parser.add_argument(
        "--only",
        choices=["throughput", "tiny", "restarts", "reconciliation", "files", "delta", "iceberg", "kafka"],
        help="one part only",
    )
    options = parser.parse_args()
    figures: list[Figure] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exactlyonce-bench-")))
        postgres = stack.enter_context(Postgres(folder / "postgres", settings=POSTGRES))
        kafka = stack.enter_context(Kafka(folder / "kafka"))
        setup = Setup(folder, kafka, postgres)
        if options.only in (None, "throughput"):
            print(f"Throughput: {options.records:,} records, {options.batch:,} a batch", flush=True)
            figures += throughput(setup, options.records, options.batch, options.repeats)
        if options.only in (None, "tiny"):
            print("Tiny batches: four rows each", flush=True)
            figures += tiny_batches(setup, options.repeats)
        if options.only in (None, "files"):
            print("Files and the object log", flush=True)
            figures += files_sink(setup, options.records, options.batch, options.repeats) + object_log(setup)
        if options.only in (None, "delta"):
            print("A Delta table", flush=True)
            figures += table_sink(setup, DELTA, options.records, options.batch, options.repeats)
        if options.only in (None, "iceberg"):
            print("An Iceberg table", flush=True)
            figures += table_sink(setup, ICEBERG, options.records, options.batch, options.repeats)
        if options.only in (None, "kafka"):
            print("A Kafka topic", flush=True)
            figures += table_sink(setup, KAFKA, options.records, options.batch, options.repeats)
        if options.only in (None, "restarts", "reconciliation"):
            setup.fill("restarts", 600_000)
        if options.only in (None, "restarts"):
            print("Start and restart", flush=True)
            figures += restarts(setup, "restarts", options.repeats)
        if options.only in (None, "reconciliation"):
            print("Reconciliation", flush=True)
            figures += reconciliation(setup, "restarts", 10)
    print(f"\n{table(figures)}\n\n{write(figures, 'pipeline')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
