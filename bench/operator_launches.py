"""Launches that are timed: spaced and in a burst, after a death, and what many streams take that need nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from bench.figures import Figure, compared
from bench.operator_setup import Namespace, OperatorSetup, Pods, core_seconds, in_threads, settled
from exactlyonce.connectors.postgres.connection import PostgresAddress
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.ledger.fence import claim_epoch
from exactlyonce.positions.ranges import Epoch

_APART_SECONDS = 0.5
_MEGABYTE = 1_000_000
P50_LIMIT = Figure("limit from apply to the driver's pod, p50", 150.0, "ms")
RATE_LIMIT = Figure("least drivers per minute", 1500.0, "a minute")
CORE_LIMIT = Figure("limit of core-seconds per launch", 0.05, "core-s")
MEMORY_LIMIT = Figure("limit of memory with 1,000 streams", 250.0, "MB")


@dataclass(frozen=True)
class Round:
    """One run: its namespace, the S3 service that it uses, and what it is called."""

    setup: OperatorSetup
    namespace: Namespace
    s3: psutil.Process
    name: str


def bare_pods(setup: OperatorSetup, number: int) -> list[Figure]:
    """Create pods with the Python client and nothing else: the floor."""
    figures = []
    for threads in (1, 10):
        space = setup.namespace(f"floor-{threads}", "")
        before = core_seconds(psutil.Process())
        seconds = in_threads(space.create_bare_pod, [f"bare-{each}" for each in range(number)], threads)
        own = (core_seconds(psutil.Process()) - before) / number
        figures.append(Figure(f"bare pods, {threads} thread{'s'[: threads - 1]}", number / seconds * 60, "a minute"))
        figures.append(Figure(f"bare pods, {threads} thread{'s'[: threads - 1]}, of the client", own, "core-s"))
        if threads == 1:
            figures.append(Figure("a bare pod", seconds / number * 1000, "ms"))
    return figures


def launches(round_: Round, operator: psutil.Process, pods: Pods, spaced: int, burst: int) -> list[Figure]:
    """Launch streams one after the other, then at once."""
    settled(operator)
    figures = [Figure(f"memory with no stream, {round_.name}", operator.memory_info().rss / _MEGABYTE, "MB")]
    before = round_.setup.shares(operator, round_.s3)
    sent: dict[str, float] = {}
    for number in range(spaced):
        sent[f"spaced-{number}"] = moment = round_.namespace.apply(f"spaced-{number}")
        time.sleep(max(moment + _APART_SECONDS - time.monotonic(), 0))
    pods.until([f"{name}-driver-1" for name in sent], "spaced drivers")
    settled(operator)
    figures += _latencies(f"spaced, {round_.name}", sent, pods)
    figures += _costs(f"spaced, {round_.name}", before, round_.setup.shares(operator, round_.s3), spaced)
    figures.append(Figure(f"memory with {spaced} streams, {round_.name}", operator.memory_info().rss / _MEGABYTE, "MB"))
    before = round_.setup.shares(operator, round_.s3)
    sent = round_.namespace.apply_all([f"burst-{number}" for number in range(burst)])
    names = [f"{name}-driver-1" for name in sent]
    pods.until(names, "drivers of a burst")
    seconds = max(pods.created[name] for name in names) - min(sent.values())
    settled(operator)
    figures += _latencies(f"burst of {burst}, {round_.name}", sent, pods)
    figures.append(compared(f"drivers in a burst, {round_.name}", burst / seconds * 60, "a minute", RATE_LIMIT))
    return figures + _costs(f"burst, {round_.name}", before, round_.setup.shares(operator, round_.s3), burst)


def deaths(round_: Round, pods: Pods, number: int) -> list[Figure]:
    """Let drivers that ran die and wait for their successors."""
    setup, space = round_.setup, round_.namespace
    login = {"host": "127.0.0.1", "port": str(setup.postgres.port), "dbname": setup.database, "user": "postgres"}
    ledger = PostgresLedger(PostgresAddress({**login, "password": setup.postgres.password}, "the benchmark"))
    names = [f"spaced-{each}" for each in range(number)]
    for name in names:
        view = ledger.view(f"{space.name}/{name}")
        assert view is not None
        claim_epoch(ledger, f"{space.name}/{name}", Epoch(1), "the benchmark", view.stream.ticket)
        space.runs(f"{name}-driver-1")
    space.until_running(number)
    told = {}
    for name in names:
        told[name] = moment = space.dies(f"{name}-driver-1")
        time.sleep(max(moment + _APART_SECONDS - time.monotonic(), 0))
    pods.until([f"{name}-driver-2" for name in names], "successors")
    ledger.close()
    waits = sorted(pods.created[f"{name}-driver-2"] - moment for name, moment in told.items())
    return [
        Figure(f"from a driver's death to the next pod, p50, {round_.name}", statistics.median(waits) * 1000, "ms"),
        Figure(f"from a driver's death to the next pod, p99, {round_.name}", _p99(waits) * 1000, "ms"),
    ]


def many(round_: Round, operator: psutil.Process, pods: Pods, streams: int, seconds: int) -> list[Figure]:
    """Have as many streams as asked for, all with a driver that runs, and see what they take."""
    space = round_.namespace
    there = sum(space.phases().values())
    names = [f"more-{number}" for number in range(streams - there)]
    space.apply_all(names)
    pods.until([f"{name}-driver-1" for name in names], "drivers of many streams")
    latest: dict[str, str] = {}
    for pod in sorted(pods.created, key=lambda pod: int(pod.rsplit("-", 1)[-1])):
        latest[pod.rsplit("-driver-", 1)[0]] = pod
    in_threads(space.runs, list(latest.values()), 4)
    space.until_running(streams)
    settled(operator, quiet=0.3)
    before = core_seconds(operator)
    time.sleep(seconds)
    share = (core_seconds(operator) - before) / seconds
    rss = operator.memory_info().rss / _MEGABYTE
    return [
        compared(f"memory with {streams:,} streams, {round_.name}", rss, "MB", MEMORY_LIMIT),
        Figure(f"steady CPU with {streams:,} healthy streams, {round_.name}", share * 100, "% core"),
    ]


def _latencies(name: str, sent: Mapping[str, float], pods: Pods) -> list[Figure]:
    waits = sorted(pods.created[f"{stream}-driver-1"] - moment for stream, moment in sent.items())
    return [
        compared(f"from apply to the driver's pod, p50, {name}", statistics.median(waits) * 1000, "ms", P50_LIMIT),
        Figure(f"from apply to the driver's pod, p99, {name}", _p99(waits) * 1000, "ms"),
    ]


def _costs(name: str, before: Mapping[str, float], after: Mapping[str, float], number: int) -> list[Figure]:
    """What a launch took of the operator, with what it did after the pod was created, and of each server."""
    each = {who: (after[who] - taken) / number for who, taken in before.items()}
    own = compared(f"core-seconds per launch, {name}", each.pop("operator"), "core-s", CORE_LIMIT)
    others = [Figure(f"  of {who}, {name}", value, "core-s") for who, value in each.items() if value > 0.0005]
    return [own, *others]


def _p99(waits: Sequence[float]) -> float:
    return waits[min(len(waits) - 1, int(len(waits) * 0.99))]
