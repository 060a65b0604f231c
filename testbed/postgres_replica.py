"""A PostgreSQL primary with a real streaming standby that can be promoted: crashes, failovers, lost transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from testbed.postgres import Postgres, Reachable
from testbed.processes import ServerDidNotStart
from testbed.tcp_gate import TcpGate

_STREAMING = {"wal_retrieve_retry_interval": "100ms", "max_wal_senders": "10", "max_replication_slots": "10"}
_PATIENCE_SECONDS = 60.0


@dataclass
class Standby(Postgres):
    """A server that is filled by pg_basebackup from `source` and then streams from there by the slot `slot`."""

    source: str = ""
    slot: str = ""

    def _fill(self) -> None:
        options = ["--pgdata", self.data, "--dbname", self.source, "--write-recovery-conf", "--checkpoint=fast"]
        self._run("pg_basebackup", *options, "--create-slot", f"--slot={self.slot}", "--no-sync")


@dataclass
class PostgresPair(Reachable):
    """A primary and its streaming standby below `folder`; a context manager that leaves nothing running.

    Clients connect to `port`, behind which the primary of the moment stands, or to `multi_host_dsn`, which names both
    servers. With `synchronous`, a commit is acknowledged only after the standby has written it to disk; without it, the
    standby lacks what was committed while `cut_replication` was in effect, and a failover loses exactly that.
    """

    folder: Path
    synchronous: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    version: int = 18
    host: str = "127.0.0.1"
    password: str = "testbed"
    _servers: list[Postgres] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)
    _clients: TcpGate = field(default_factory=TcpGate)
    _link: TcpGate = field(default_factory=TcpGate)
    _standby: Standby | None = None

    def __post_init__(self) -> None:
        self.port = self._clients.port

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            starting.callback(self._end_servers)
            starting.enter_context(self._clients)
            starting.enter_context(self._link)
            self._begin(Postgres(self._next_folder(), self.version, settings=self._all_settings()))
            self._clients.lead_to(self.primary.port)
            self.rebuild_standby()
            self._stack = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def primary(self) -> Postgres:
        """The server that takes writes at this moment, or took them before it crashed."""
        return self._servers[-1] if self._standby is None else self._servers[-2]

    @property
    def standby(self) -> Standby:
        """The server that follows."""
        assert self._standby is not None, "there is a standby until a failover, and after rebuild_standby"
        return self._standby

    def multi_host(self) -> dict[str, str]:
        """Return the hosts and ports of both servers as libpq lists them, the standby first."""
        servers = [self.standby, self.primary]
        return {"host": ",".join(server.host for server in servers), "port": ",".join(str(s.port) for s in servers)}

    def crash(self) -> None:
        """Crash the primary and start it again; the standby continues following."""
        self.primary.crash()
        self.primary.start()

    def cut_replication(self) -> None:
        """Let nothing more reach the standby: what is committed from here on is lost by a failover."""
        self._link.cut()

    def mend_replication(self) -> None:
        """Let the standby follow again."""
        self._link.lead_to(self.primary.port)

    def wait_for_standby(self) -> None:
        """Return when the standby has replayed what the primary has written by now."""
        (position,) = self.primary.execute("select pg_current_wal_insert_lsn()")[0]
        self._await(
            lambda: bool(self.standby.execute("select pg_last_wal_replay_lsn() >= %s", parameters=[position])[0][0]),
            f"the standby has replayed up to {position}",
        )

    def fail_over(self) -> None:
        """Crash the primary for good and promote the standby, to which the clients' address leads from then on.

        What the standby has received by the crash survives; there is no standby until `rebuild_standby`.
        """
        self._clients.cut()
        self.primary.crash()
        self.standby.execute(f"select pg_promote(true, {_PATIENCE_SECONDS:.0f})")
        self._await(
            lambda: self.standby.execute("select pg_is_in_recovery()") == [(False,)], "the standby takes writes"
        )
        self._standby = None
        self._clients.lead_to(self.primary.port)

    def rebuild_standby(self) -> None:
        """Give the primary a new standby, made of a base backup, in place of the one it had or of the failed primary."""
        for server in self._servers:
            if server is not self.primary:
                server.__exit__()
        primary = self.primary
        self._servers, self._standby = [primary], None
        # A standby copies this setting too, and as a primary without a standby of its own would never commit.
        primary.execute("alter system reset synchronous_standby_names")
        primary.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
        self._link.lead_to(primary.port)
        folder = self._next_folder()
        source = f"host={self.host} port={self._link.port} user=postgres password={self.password}"
        standby = Standby(folder, self.version, settings=self._all_settings(), source=source, slot=folder.name)
        self._begin(standby)
        self._standby = standby
        self._await(
            lambda: self.primary.execute("select 1 from pg_stat_replication where state = 'streaming'") != [],
            "the standby is streaming",
        )
        if self.synchronous:
            primary.execute("alter system set synchronous_standby_names = '*'")
        primary.execute("select pg_reload_conf()")

    def _begin(self, server: Postgres) -> None:
        self._servers.append(server)
        server.__enter__()

    def _end_servers(self) -> None:
        for server in self._servers:
            server.__exit__()

    def _next_folder(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"server_{len(list(self.folder.iterdir())) + 1}"

    def _all_settings(self) -> dict[str, str]:
        return {**_STREAMING, **self.settings}

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise ServerDidNotStart(f"It was not so within {_PATIENCE_SECONDS:.0f} s: {what}")
            time.sleep(0.05)
