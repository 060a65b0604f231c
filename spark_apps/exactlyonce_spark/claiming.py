"""What a driver does before Spark runs: it takes its epoch, and looks at the target."""

from __future__ import annotations

import functools
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.assembly import Secrets, ledger_address, source_address
from exactlyonce.connectors.specs import TakesReplays
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_secret
from exactlyonce.ledger.connector import LedgerAddress, OpenLedger, Use
from exactlyonce.ledger.fence import Permit, claim_epoch
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import Epoch
from exactlyonce.source.connector import SourceCheck
from exactlyonce_spark.assembly import sink_connector
from exactlyonce_spark.connectors.ports import PreparedSink
from exactlyonce_spark.settings import DriverSpec


@dataclass(frozen=True)
class DriverComponents:
    """What a driver has before Spark runs; `at_ledger` is where the ledger is."""

    driver: DriverSpec
    secrets: Secrets
    at_ledger: LedgerAddress
    ledger: OpenLedger
    source: SourceCheck
    sink: PreparedSink
    permit: Permit
    stream: StreamRow


def claim(driver: DriverSpec, epoch: Epoch) -> DriverComponents:
    """Take the epoch before anything else, and look at the target before Spark is started."""
    spec, secrets = driver.spec, functools.partial(read_secret, Path(os.environ[SECRETS_FOLDER]))
    at_ledger = ledger_address(spec, secrets)
    ledger = at_ledger.open(f"exactlyonce {driver.stream_id}", Use.BATCHES)
    token = str(uuid.uuid4())
    into = spec.sink.spec.landing_place if isinstance(spec.sink.spec, TakesReplays) else None
    writes = driver.task is DriverTask.RUN_QUERY
    permit, stream = claim_epoch(
        ledger, driver.stream_id, epoch, token, driver.ticket, driver.checkpoint_path, into, writes=writes
    )
    sink = sink_connector(spec).prepare(spec, secrets, ledger, permit, stream)
    return DriverComponents(
        driver, secrets, at_ledger, ledger, source_address(spec.source, secrets).open(), sink, permit, stream
    )
