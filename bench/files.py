"""Rows per second and milliseconds a tiny batch into Parquet files, against a plain `df.write.parquet`; the object log alone.

There are two plain jobs: one parses as people do, and a malformed record becomes NULLs; the other parses as our driver does,
so that its batches are the same as ours, and the difference is the sink, the ledger and the source's check.
Goals: at least 0.95 of the rows per second of the same batches; a tiny batch at most 50 ms above theirs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet

from bench.figures import Figure, compared
from bench.setup import Setup, batch_moments, finish
from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import S3Service
from exactlyonce.checkpoint.store import ObjectStore
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.ledger.fence import NewStream, Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.rows import LandedPositions, Owner, QueryMark
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce.positions.selection import Selection
from exactlyonce_spark.landing import land_batch
from exactlyonce_spark.planned import PlannedBatch, Written
from testbed.s3 import S3

OURS, PEER, UNCHECKED = "files", "parquet-checked", "parquet"
TINY_BATCHES = 60
LANDINGS = 150
"""So many landings are timed, after ten that warm up: a snapshot is among them."""
_STREAM, _ORIGIN = "bench/orders", "orders"
_COMMITTABLE = "x" * 1200
"""As long as a committable of four files."""


def files_sink(setup: Setup, records: int, batch: int, repeats: int) -> list[Figure]:
    """Measure both `repeats` times, in turns, and return medians; the first batch of each run warms up."""
    setup.fill("files", records)
    setup.fill("tiny-files", 4 * TINY_BATCHES)
    rates: dict[str, list[float]] = {UNCHECKED: [], PEER: [], OURS: []}
    tiny: dict[str, list[float]] = {name: [] for name in rates}
    for turn in range(1, repeats + 1):
        for name in rates:
            moments = _run(setup, name, "files", batch, records)
            rates[name].append((len(moments) - 1) * batch / (moments[-1] - moments[0]))
            moments = _run(setup, name, "tiny-files", 4, 4 * TINY_BATCHES)
            tiny[name].append(statistics.median(later - earlier for earlier, later in pairwise(moments[10:])) * 1000)
            print(f"  {turn}/{repeats} {name}: {rates[name][-1]:,.0f} rows/s, {tiny[name][-1]:.0f} ms", flush=True)
    middle = {name: (statistics.median(rates[name]), statistics.median(tiny[name])) for name in rates}
    plain = Figure("df.write.parquet of the same rows", middle[PEER][0], "rows/s")
    plain_tiny = Figure("tiny batch, df.write.parquet of the same rows", middle[PEER][1], "ms")
    return [
        plain,
        compared("df.write.parquet, malformed records unnoticed", middle[UNCHECKED][0], "rows/s", plain),
        compared("exactly once, files", middle[OURS][0], "rows/s", plain),
        plain_tiny,
        compared("tiny batch, malformed records unnoticed", middle[UNCHECKED][1], "ms", plain_tiny),
        compared("tiny batch, exactly once, files", middle[OURS][1], "ms", plain_tiny),
        Figure("tiny batch, files above df.write.parquet", middle[OURS][1] - middle[PEER][1], "ms"),
    ]


def object_log(setup: Setup) -> list[Figure]:
    """Measure what one batch costs in an object log, against one conditional create on the same store."""
    figures: list[Figure] = []
    with S3(setup.fresh("s3")) as service:
        service.create_bucket("ledgers")
        login = S3Service.of(service.endpoint, None, path_style=True, secret=service.secret())
        stores: dict[str, Callable[[], ObjectStore]] = {
            "local disk": lambda: LocalLogStore(str(setup.fresh("object-log"))),
            "S3 (moto)": lambda: S3LogStore("s3a://ledgers/bench", login),
        }
        for name, opened in stores.items():
            store = opened()
            single = Figure(f"one conditional create, {name}", _creates(store), "ms")
            figures += [single, compared(f"object log, {name}: a batch", _landings(store), "ms", single)]
    return figures


def _run(setup: Setup, name: str, topic: str, batch: int, records: int) -> list[float]:
    """Run one contender over the whole topic and return when each batch with data was committed."""
    folder, database = setup.fresh(name), setup.database()
    out = folder / "out"
    if name == OURS:
        spec = {
            "sink": {"files": {"path": str(out)}},
            "ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
            "trigger": {"availableNow": True},
        }
        finish(setup.run_stream(folder, setup.stream_file(folder, topic, database, batch, **spec)), folder)
    else:
        finish(setup.run_bare(folder, name, topic, database, batch), folder)
    assert _rows_below(out) == records, f"{name} has written every row once"
    moments = batch_moments(folder)
    setup.postgres.execute(f"drop database {database}")
    return moments[1:] if name == OURS else moments  # our first is the seed, an empty batch


def _rows_below(folder: Path) -> int:
    """Count by footers; nothing was killed, so every file counts."""
    return sum(pyarrow.parquet.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


def _creates(store: ObjectStore) -> float:
    def create(number: int) -> None:
        store.create(f"single/{number}", _COMMITTABLE.encode())

    return _median_milliseconds(create)


def _landings(store: ObjectStore) -> float:
    ledger = ObjectLogLedger(ObjectLog(store, "ledger"))
    ledger.prepare()
    permit = _started(ledger)

    def record(number: int) -> Callable[[LedgerTransaction], Written]:
        def write(transaction: LedgerTransaction) -> Written:
            transaction.write_committable(_STREAM, BatchNumber(number), _COMMITTABLE)
            return Written(1)

        return write

    def land(number: int) -> None:
        ranges = Ranges({Partition(_ORIGIN, 0): OffsetRange(number - 1, number)})
        land_batch(ledger, permit, PlannedBatch(BatchNumber(number), ranges, {_ORIGIN: "id"}), record(number))

    return _median_milliseconds(land)


def _started(ledger: Ledger) -> Permit:
    new = NewStream(_STREAM, "token", Owner("bench", "uid"), ledger.database_identity())
    raise_epoch(ledger, new, Epoch(1), "ticket")
    start = LandedPositions(Positions({Partition(_ORIGIN, 0): 0}), {_ORIGIN: "id"})
    seed = Publication(
        epoch=Epoch(1),
        generation=1,
        path="/bench/generation-000001-a1",
        seed_batch=BatchNumber(0),
        before=Positions(),
        after=start,
        note="a benchmark",
        query=QueryMark(Selection(origins=frozenset({_ORIGIN})), "query", "no limit"),
    )
    publish(ledger, _STREAM, seed)
    return claim_epoch(ledger, _STREAM, Epoch(1), "claim", "ticket")[0]


def _median_milliseconds(act: Callable[[int], None]) -> float:
    found = []
    for number in range(1, LANDINGS + 11):
        began = time.perf_counter()
        act(number)
        found.append(time.perf_counter() - began)
    return statistics.median(found[10:]) * 1000
