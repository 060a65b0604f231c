"""Put one stream of a file together with this machine: its stores, its launcher, its status."""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from exactlyonce.api.resource import ResourceInvalid, Stream, read_streams
from exactlyonce.api.spec import Delivery
from exactlyonce.assembly import checkpoint_store, ledger_address, source_address
from exactlyonce.cli.local_answers import LocalAnswers, LocalReset
from exactlyonce.cli.status_file import StatusFile, StatusUnreadable
from exactlyonce.launch.driver_document import DriverDocument
from exactlyonce.launch.driver_progress import progress_limit
from exactlyonce.launch.local import LocalLauncher
from exactlyonce.launch.secrets import read_secret
from exactlyonce.ledger.connector import OpenLedger
from exactlyonce.ledger.rows import Owner
from exactlyonce.reconcile.loop import StreamLoop
from exactlyonce.reconcile.observe import Stores
from exactlyonce.reconcile.pass_context import Attempts, PassContext, Place, Reporter, Timing
from exactlyonce.reconcile.progress import RateLimit

TASK_TRIES = 4  # Spark's own default on a cluster; its local mode would try a task once


@dataclass(frozen=True)
class LocalStream:
    """A stream and what it works with on this machine."""

    stream: Stream
    ledger: OpenLedger
    stores: Stores
    statuses: StatusFile
    launcher: LocalLauncher
    state_root: Path
    answers: LocalAnswers
    reset: LocalReset

    @property
    def owner(self) -> Owner:
        """The owner as the ledger knows it: this machine's state folder, and the uid of the status file.

        A state folder is what a cluster is elsewhere: only there can be told whether another owner is gone.
        """
        return Owner(f"{machine()}:{self.state_root.absolute()}", self.statuses.uid)

    def loop(self, report: Callable[[str, str], None]) -> StreamLoop:
        """Return the stream's loop."""
        rate_limit = RateLimit(time.monotonic)
        context = PassContext(
            self.stores,
            Attempts(self.launcher),
            self.statuses,
            Place(self.owner, self.owner_is_gone),
            Reporter(report),
            Timing(lambda: datetime.now(UTC), lambda: rate_limit.is_due(self.stream.stream_id)),
        )
        return StreamLoop(self.stream, context)

    def owner_is_gone(self, owner: Owner) -> bool:
        """Whether no status file of this state folder has that uid any more; one that cannot be read may have it."""
        try:
            return all(StatusFile(file).uid != owner.uid for file in self.state_root.glob("*/status.json"))
        except StatusUnreadable:
            return False


def choose_stream(file: Path, name: str | None) -> Stream:
    """Return the stream of a file, or the one of that name where it holds several.

    Raises:
        ResourceInvalid: if there is none, or no telling which.
    """
    streams = read_streams(file)
    names = [stream.metadata.name for stream in streams]
    chosen = [stream for stream in streams if name in (None, stream.metadata.name)]
    if len(chosen) != 1:
        missing = "" if name is None or chosen else f"there is no stream {name} in it; "
        raise ResourceInvalid([f"{file}: {missing}it holds {', '.join(names)}; choose one with --name."])
    return chosen[0]


def open_stream(stream: Stream, state_root: Path, secrets: Path, *, read_only: bool = False) -> LocalStream:
    """Put a stream together; nothing is connected to yet.

    Raises:
        SecretMissing: if a secret that the stream names is not in `secrets`.
    """
    spec = stream.spec
    read = functools.partial(read_secret, secrets)
    ledger, source = ledger_address(spec, read).open(), source_address(spec.source, read).open()
    home = state_root / f"{stream.metadata.namespace}.{stream.metadata.name}"
    statuses = StatusFile(home / "status.json")
    runner = LocalLauncher(
        folder=home / "attempts",
        document=driver_document(stream),
        secrets=secrets.absolute(),
        run_id=f"{home.absolute()}",
        read_only=read_only,
        progress_seconds=progress_limit(spec).total_seconds(),
    )
    checkpoints = checkpoint_store(spec.checkpoint, read)
    stores = Stores(ledger, checkpoints, source)
    answers = LocalAnswers(home / "settle-loads")
    reset = LocalReset(home / "reset-offsets")
    asked = reset.among(answers.among(stream))
    return LocalStream(asked, ledger, stores, statuses, runner, state_root, answers, reset)


def driver_document(stream: Stream) -> DriverDocument:
    """Return the document that a driver process reads: the resolved spec and how Spark runs here."""
    cores = stream.spec.driver.cores
    tries = 1 if stream.spec.delivery is Delivery.AT_MOST_ONCE else TASK_TRIES
    addresses = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return DriverDocument(stream.stream_id, stream.spec.differences(), f"local[{cores},{tries}]", addresses)


def default_state_root() -> Path:
    """The folder in which local mode keeps its state unless it is told another."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "exactlyonce"


def machine() -> str:
    """A name for this machine that stays the same: what a cluster's id is elsewhere."""
    for file in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        if file.exists() and file.read_text().strip():
            return f"local-{file.read_text().strip()}"
    return f"local-{socket.gethostname()}"
