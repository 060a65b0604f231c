"""What an attempt of a StreamReplay is on Kubernetes: a ConfigMap and one pod, which has no executors. Performs no I/O.

It is made of what the stream's own driver is made of: its image, account, size, secrets and pod template. It has its
checkpoint only where the source is a folder, and none of its network and its token for the API server, since Spark runs in
this one process. Nor has it the finalizer that keeps a driver's record: a replay whose end nobody has seen is simply run again
(docs/adr/0044).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exactlyonce.api.replayed_ranges import GivenRange
from exactlyonce.api.resource import Stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.api.stream_replay import REPLAY_KIND, StreamReplay
from exactlyonce.bounded_json import MALFORMED, parse_json
from exactlyonce.launch.asked_ranges import AskedRange, parse_asked, render_asked
from exactlyonce.launch.backfill import BackfillOrder, order_between, order_of, order_of_named, rows_of
from exactlyonce.launch.driver_document import PROGRESS_VARIABLE, SCRATCH
from exactlyonce.launch.driver_pod import (
    ATTEMPT_FOLDER,
    START_SECONDS,
    TERMINATION_LOG,
    Manifests,
    container_of,
    metadata_of,
    variables,
)
from exactlyonce.launch.driver_progress import progress_file, with_progress_probe
from exactlyonce.launch.driver_volumes import volumes_of
from exactlyonce.launch.last_message import MAX_BYTES
from exactlyonce.launch.pod_facts import terminated_state
from exactlyonce.launch.pod_names import DRIVER, REPLAY_OF_LABEL, driver_name, label_value, launched_as
from exactlyonce.launch.pod_settings import OwnerReference, PodDefaults, PodSettings, resolve
from exactlyonce.launch.pod_template import DRIVER_ROLE, Manifest, merged
from exactlyonce.launch.reconcile_container import LOCAL_FOLDERS
from exactlyonce.launch.replay_document import ReplayDocument, ReplayReport
from exactlyonce.launch.restricted import POD_SECURITY
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.positions.ranges import Epoch, OffsetRange, Partition

REPLAY_FILE, ASKED_FILE = "replay.json", "asked.json"


@dataclass(frozen=True)
class ReplayOrders:
    """What one attempt is to land: the ranges that were asked for, and what of them is left."""

    asked: tuple[AskedRange, ...]
    ranges: tuple[RangeKey, ...]


def token_of(uid: str) -> str:
    """Return what the tokens of all attempts of a StreamReplay begin with, by which its ledger tells what it has landed."""
    return f"{uid}/"


def backfill_of(replay: StreamReplay, rows: str) -> BackfillOrder | None:
    """Return the backfill that a StreamReplay asks for, None where it replays into the stream's own table.

    `rows` is what `rows_of` returns for the stream with the transform of the replay.
    """
    into, ranges = replay.spec.into, replay.spec.from_.ranges
    if into is None or ranges is None:
        return None
    name = into.backfill
    if ranges.by_timestamp is not None:
        return order_between(name, into.table, ranges.by_timestamp.from_, ranges.by_timestamp.until, rows)
    if ranges.named is not None:
        return order_of_named(name, into.table, (it.span for it in ranges.named), rows)
    return order_of(name, into.table, (span_of(it) for it in ranges.positions or ()), rows)


def span_of(given: GivenRange) -> tuple[Partition, OffsetRange]:
    """Return the partition and the offsets of a range as a resource gives it."""
    return Partition(given.topic, given.partition), OffsetRange(given.from_, given.until)


def with_transform(stream: Stream, replay: StreamReplay) -> Stream:
    """Return the stream with the transform that the replay uses."""
    if replay.spec.transform is None:
        return stream
    document = {**stream.spec.differences(), "transform": {"sql": replay.spec.transform.sql}}
    return stream.model_copy(update={"spec": StreamSpec.model_validate(document)})


def replay_manifests(
    replay: StreamReplay, uid: str, stream: Stream, attempt: Epoch, defaults: PodDefaults, orders: ReplayOrders
) -> Manifests:
    """Return what an attempt of a replay consists of; `uid` is that of the replay.

    Raises:
        ImageMissing: if neither the stream nor the operator names an image.
        TemplateRefused: if the stream's pod template asks for what may not be.
    """
    replayed = with_transform(stream, replay)
    settings = _settings(replay, uid, replayed, attempt, defaults)
    pod = with_progress_probe(merged(_pod(settings), settings.driver_template, DRIVER_ROLE), settings.progress_limit)
    config_map = _config_map(settings, replay, replayed.spec, orders)
    for manifest in (config_map, pod):
        manifest["metadata"]["labels"][REPLAY_OF_LABEL] = label_value(stream.metadata.name)
    return Manifests(config_map, None, pod, None)


def _settings(replay: StreamReplay, uid: str, stream: Stream, attempt: Epoch, defaults: PodDefaults) -> PodSettings:
    settings = resolve(stream, attempt, uid, defaults)
    name = replay.metadata.name
    return replace(
        settings,
        stream=launched_as(name),
        owner=OwnerReference(name, uid, REPLAY_KIND),
        spec={key: value for key, value in settings.spec.items() if key != "sparkUi"},
        # The lists that say which files a range of a folder has are beside the generations.
        claim=settings.claim if stream.spec.source.spec.folder_fields else None,
        ui=False,
    )


def _config_map(settings: PodSettings, replay: StreamReplay, spec: StreamSpec, orders: ReplayOrders) -> Manifest:
    asked = replay.spec.from_
    document = ReplayDocument(
        settings.stream_id,
        settings.spec,
        f"local[{spec.driver.cores}]",
        orders.ranges,
        most_records=replay.spec.chunk,
        records_per_second=None if replay.spec.limit is None else float(replay.spec.limit),
        find=None if asked.dead_letters is None else asked.dead_letters.to_document(),
        take_up=() if asked.ranges is None else orders.asked,
        tells_refused=asked.ranges is None or asked.ranges.positions is not None,
        by=token_of(settings.owner.uid),
        backfill=backfill_of(replay, rows_of(spec)),
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata_of(settings, driver_name(settings.stream, settings.attempt)),
        "immutable": True,
        "data": {REPLAY_FILE: document.render(), ASKED_FILE: render_asked(orders.asked)},
    }


def _pod(settings: PodSettings) -> Manifest:
    name = driver_name(settings.stream, settings.attempt)
    arguments = ["replay", "--document", f"{ATTEMPT_FOLDER}/{REPLAY_FILE}"]
    arguments += ["--report", TERMINATION_LOG, "--report-bytes", str(MAX_BYTES)]
    environment = [
        *variables(),
        {"name": LOCAL_FOLDERS, "value": SCRATCH},
        {"name": PROGRESS_VARIABLE, "value": progress_file(name)},
    ]
    spec: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.drain_seconds + START_SECONDS,
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "containers": [container_of(settings, DRIVER, arguments, {"env": environment})],
        "volumes": [{"name": "attempt", "configMap": {"name": name}}, *volumes_of(settings)],
    }
    if settings.image.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in settings.image.pull_secrets]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata_of(settings, name), "spec": spec}


def asked_in(config_maps: Sequence[Manifest]) -> tuple[AskedRange, ...] | None:
    """Return what was asked for, as the first of these ConfigMaps that can be read has it; None where none can."""
    for found in config_maps:
        try:
            return parse_asked(found["data"][ASKED_FILE])
        except MALFORMED:
            continue
    return None


def sink_of(stream: Stream) -> Mapping[str, Any]:
    """Return the sink of a stream as an attempt's ConfigMap has it."""
    return dict(json.loads(json.dumps(stream.spec.differences()["sink"])))


def sink_in(config_map: Manifest) -> Mapping[str, Any] | None:
    """Return the sink that an attempt was started for; None where its ConfigMap cannot be read."""
    try:
        return dict(parse_json(config_map["data"][REPLAY_FILE])["spec"]["sink"])
    except MALFORMED:
        return None


def report_in(pod: Manifest) -> ReplayReport | None:
    """Return the report that a replay's pod has left, or None where it left none."""
    try:
        return ReplayReport.parse((terminated_state(pod) or {}).get("message") or "")
    except MALFORMED:
        return None
