"""What the operator's process is started with: command line and environment."""

from __future__ import annotations

import argparse
import os
import socket
from dataclasses import dataclass

from exactlyonce.control.allowlists import Allowlists, parse_allowlists
from exactlyonce.control.lease import LeaseTimes
from exactlyonce.control.namespace_lists import ListUnusable
from exactlyonce.control.operator_locations import OperatorLocations, parse_locations
from exactlyonce.control.operator_sources import OperatorSources, parse_sources
from exactlyonce.launch.driver_document import Image
from exactlyonce.launch.pod_settings import PodDefaults
from exactlyonce.schema.places import EXAMPLE_OF_A_NAMED_PLACE

PREFIX = "EXACTLYONCE_OPERATOR_"


@dataclass(frozen=True)
class OperatorSettings:
    """The settings of one operator process. No namespaces means all of them."""

    namespaces: tuple[str, ...]
    selector: str
    identity: str
    lease_namespace: str
    lease_name: str
    lease_times: LeaseTimes
    workers: int
    defaults: PodDefaults
    locations: OperatorLocations
    sources: OperatorSources
    allowlists: Allowlists
    health_port: int
    log_format: str
    monitor_seconds: float
    partition_series: bool


def read_settings(arguments: list[str] | None = None) -> OperatorSettings:
    """Read the settings; every option can be given as an environment variable too."""
    parser = argparse.ArgumentParser(
        prog="python -m exactlyonce.control",
        description="The operator: watches ExactlyOnceStreams and runs their drivers as pods.",
        epilog=f"Each option can also be given in the environment, such as {PREFIX}LEASE_NAME. A list is separated by commas.",
    )

    def option(name: str, help_text: str, default: str = "") -> None:
        variable = PREFIX + name.upper().replace("-", "_")
        shown = f"{help_text} (default: {default or 'none'})"
        parser.add_argument(f"--{name}", default=os.environ.get(variable, default), help=shown, metavar="VALUE")

    option("namespaces", "the namespaces to watch; all of them when it is empty")
    option("selector", "act only on streams with these labels, such as shard=a")
    option("identity", "this process's name in the lease", socket.gethostname())
    option("lease-namespace", "the namespace of the lease", "default")
    option("lease-name", "the lease; shards of one cluster need one each", "exactlyonce-operator")
    option("lease-seconds", "how long a silent holder keeps the lease", "15")
    option("workers", "how many passes may run at once", "10")
    option("image", "the image of drivers and executors, for streams that do not name one")
    option("image-pull-policy", "how that image is pulled")
    option("image-pull-secrets", "the secrets it is pulled with")
    option("service-account", "the service account of drivers, for streams that do not name one", "exactlyonce-driver")
    option(
        "checkpoint-locations",
        "where on S3 streams without a login of their own may have checkpoints that the operator reaches with its own login: "
        'a JSON list such as [{"namespaces": ["shop"], "prefixes": ["s3a://lake/{namespace}"]}]',
    )
    option(
        "source-locations",
        "which data streams and lease tables of streams without a login of their own the operator reaches with its own login: "
        f'a JSON list such as [{{"namespaces": ["shop"], "names": ["{EXAMPLE_OF_A_NAMED_PLACE}"]}}]',
    )
    option(
        "allowlists",
        "which images, service accounts, priority classes and nodes the streams of a namespace may name: a JSON list such as "
        '[{"namespaces": ["shop"], "images": ["registry.example/streams/*"], "nodeNames": []}]',
    )
    option("health-port", "the port of /livez, /readyz and /metrics", "8080")
    option("log-format", "json or text", "json")
    option("monitor-seconds", "how often the lag of every stream is measured", "30")
    option("partition-series", "true or false: whether /metrics has series of single partitions", "false")
    given = parser.parse_args(arguments)
    seconds = float(given.lease_seconds)
    try:
        locations = parse_locations(given.checkpoint_locations)
        sources = parse_sources(given.source_locations)
        allowlists = parse_allowlists(given.allowlists)
    except ListUnusable as problem:
        parser.error(str(problem))
    image = (
        Image(given.image, given.image_pull_policy or None, _listed(given.image_pull_secrets)) if given.image else None
    )
    return OperatorSettings(
        namespaces=_listed(given.namespaces),
        selector=given.selector,
        identity=given.identity,
        lease_namespace=given.lease_namespace,
        lease_name=given.lease_name,
        lease_times=LeaseTimes(seconds, seconds * 2 / 3, seconds / 7),
        workers=int(given.workers),
        defaults=PodDefaults(given.service_account, image),
        locations=locations,
        sources=sources,
        allowlists=allowlists,
        health_port=int(given.health_port),
        log_format=given.log_format,
        monitor_seconds=float(given.monitor_seconds),
        partition_series=given.partition_series.lower() == "true",
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
