"""A stream on a real API server as a test of the resource needs it: a namespace, and a status that has every field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubernetes import client, config

from exactlyonce.api.attempt_status import BadUpdate, GoodAttempt
from exactlyonce.api.conditions import rendered
from exactlyonce.api.status import (
    BatchLimit,
    CheckpointStatus,
    ConsecutiveFailures,
    DriverStatus,
    LandedShown,
    Phase,
    PoisonBatch,
    Progress,
    ReplaysStatus,
    StreamStatus,
    VerdictStatus,
)
from scripts import generate_crd
from tests.cluster.streams import Streams, install, make_namespace

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

STATUS = StreamStatus(
    phase=Phase.RUNNING,
    message="Attempt 17 runs.",
    attempt=17,
    batch_limit=BatchLimit(
        records=200,
        message="Batch 7 was too large: it took longer than it may.",
        batch=7,
        until='{"orders":{"0":400}}',
        since=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    ),
    verdict=VerdictStatus(
        kind="ReplayBatch",
        message="Batch 8 was planned.",
        attempt=17,
        at=NOW,
        batch=8,
        evidence=({"words": "offsets/8 is there.", "ranges": {"orders": [[0, 7, 19]]}},),
    ),
    driver=DriverStatus(
        attempt=17,
        landed_at_start=7,
        plan="ab12",
        takes_over="table app in eu-central-1",
        pod_name="orders-driver-17",
        image="spark:1",
        started_at=NOW,
    ),
    checkpoint=CheckpointStatus(generation=3, location="s3a://lake/checkpoints/orders/generation-000003-a17"),
    progress=Progress(batch=4215, landed_at=NOW, lag_records=77, lag_files=12, lag_seconds=3, held_records=5),
    poison_batch=PoisonBatch(batch=8, until='{"orders":{"0":19}}', error="A row does not fit.", since=NOW),
    consecutive_failures=ConsecutiveFailures(endings=1, batch=8, batch_failures=1, retry_at=NOW),
    last_good=GoodAttempt(attempt=17, plan="ab12", image="spark:1"),
    bad_update=BadUpdate(
        plan="ef56",
        image="spark:2",
        attempt=16,
        at=NOW,
        failures=1,
        tries=2,
        reason="ImageNotPullable",
        message="The image spark:2 cannot be pulled.",
        not_rolled_back_message="It has failed once.",
    ),
    took_over="table app in eu-central-1",
    landed_shown=LandedShown(
        place="table app in eu-central-1", reason="Failed", message="It could not be written.", tries=2, retry_at=NOW
    ),
    acted_on="cd34",
    replays=ReplaysStatus(schedule="0 3 * * * Europe/Berlin", since=NOW),
)


@contextmanager
def administrator(kubeconfig: Path, namespace: str) -> Iterator[client.ApiClient]:
    """A client of an administrator, with the definition installed, and a namespace that goes with it."""
    connect: Any = config.new_client_from_config
    with connect(str(kubeconfig)) as made:
        install(made, generate_crd.definition())
        make_namespace(made, namespace)
        yield made
        core: Any = client.CoreV1Api(made)
        core.delete_namespace(namespace)


def with_status(streams: Streams, before: dict[str, Any], status: StreamStatus) -> dict[str, Any]:
    """Write a status as the operator does."""
    return streams.replace_status({**before, "status": rendered(status, before, NOW)})
