"""`make bench-operator`: what a launch by the operator takes. Prints a table and writes bench/out/operator.json.

Every ratio compares figures of the same run. Goals: from apply to the driver's pod below 150 ms in the middle, more than 1,500
drivers per minute, less than 0.05 core-seconds per launch, less than 250 MB with 1,000 streams.

The pods need not run: the cluster has no nodes. Each launch reconciles against a real Postgres, a real Kafka and an S3 service
(moto's, a stand-in that takes milliseconds of a core for each request). Two more runs tell what of it is whose: one with an S3
service that costs next to nothing, and one with the stores in the operator's own memory (`bench.without_stores`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from bench.figures import Figure, table, write
from bench.operator_launches import Round, bare_pods, deaths, launches, many
from bench.operator_scale import scale
from bench.operator_setup import BUCKET, TOPIC, OperatorSetup, connected, operator_process
from exactlyonce.launch.api_server import Answered, ApiServerUnreachable
from scripts import generate_crd
from testbed import cluster_tools, processes
from testbed.cluster import Cluster
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.s3 import S3

RUNS = {"whole": "all stores", "quick": "an S3 that costs nothing", "without": "no stores"}
SCALE = "scale"


def main() -> int:
    """Run the parts that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m bench.operator", description=__doc__.split("\n")[0])
    parser.add_argument("--spaced", type=int, default=100, help="streams, one every half second (default: %(default)s)")
    parser.add_argument("--burst", type=int, default=300, help="streams at once (default: %(default)s)")
    parser.add_argument("--streams", type=int, default=1000, help="streams in the end (default: %(default)s)")
    parser.add_argument("--deaths", type=int, default=30, help="drivers that die (default: %(default)s)")
    parser.add_argument("--steady", type=int, default=120, help="seconds of steady state (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where logs stay; a temporary one without it")
    parser.add_argument("--many", type=int, default=10_000, help="streams of the run `scale` (default: %(default)s)")
    parser.add_argument("--many-running", type=int, default=1000, help="of them with a driver (default: %(default)s)")
    parser.add_argument("--only", choices=[*RUNS, SCALE], action="append", help="one run only")
    options = parser.parse_args()
    lack = cluster_tools.missing()
    if lack is not None:
        print(lack, file=sys.stderr)
        return 1
    figures: list[Figure] = []
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exactlyonce-bench-")))
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        setup = stack.enter_context(_setup(folder))
        asked = options.only or [*RUNS, SCALE]
        if SCALE in asked:
            with _endpoint(folder, SCALE) as (endpoint, _):
                figures += scale(setup.namespace(SCALE, endpoint), options.many, options.many_running)
        if asked != [SCALE]:
            print("Bare pods", flush=True)
            figures += bare_pods(setup, options.burst)
        for run in (run for run in asked if run != SCALE):
            with _endpoint(folder, run) as (endpoint, s3):
                round_ = Round(setup, setup.namespace(run, endpoint), s3, RUNS[run])
                module = "bench.without_stores" if run == "without" else "exactlyonce.control"
                with operator_process(setup, round_.namespace, module) as operator, round_.namespace.watched() as pods:
                    print(f"With {RUNS[run]}", flush=True)
                    figures += launches(round_, operator, pods, options.spaced, options.burst)
                    if run == "whole":
                        figures += deaths(round_, pods, options.deaths)
                        figures += many(round_, operator, pods, options.streams, options.steady)
    file = write(figures, "operator")
    print(f"\n{table(figures)}\n\n{file}")
    return 0


@contextmanager
def _setup(folder: Path) -> Iterator[OperatorSetup]:
    """Start the servers and install the definition of a stream."""
    with (
        Cluster(folder / "cluster", nodes=0) as cluster,
        Postgres(folder / "postgres", settings={"max_connections": "200"}) as postgres,
        Kafka(folder / "kafka") as kafka,
        connected(cluster) as api,
    ):
        kafka.create_topic(TOPIC, 4)
        setup = OperatorSetup(folder, cluster, kafka, postgres, api)
        postgres.create_database(setup.database)
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        setup.request("POST", definitions, generate_crd.definition())
        while not _is_served(setup):
            pass
        yield setup


def _is_served(setup: OperatorSetup) -> bool:
    try:
        setup.request("GET", f"/apis/{generate_crd.GROUP}/{generate_crd.VERSION}/{generate_crd.PLURAL}")
    except (Answered, ApiServerUnreachable):  # until it is served, the answer is no JSON
        return False
    return True


@contextmanager
def _endpoint(folder: Path, run: str) -> Iterator[tuple[str, psutil.Process]]:
    """Start the S3 service of a run and yield its address and its process."""
    if run == "whole":
        with S3(folder / "s3") as service:
            service.create_bucket(BUCKET)
            yield service.endpoint, psutil.Process(service.pid)
        return
    port = processes.free_port()
    log = folder / f"s3-{run}.log"
    process = processes.start([sys.executable, "-m", "bench.quick_s3", str(port)], log)
    processes.wait_until_ready(process, lambda: processes.port_answers(port), "The S3 service", log, 60)
    try:
        yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
