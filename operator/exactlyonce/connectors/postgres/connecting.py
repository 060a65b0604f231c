"""Open a session of libpq that depends on nothing but its parameters, within a time that nobody can widen.

libpq takes what it is not told from the environment, and from files of the home folder: a PGSERVICE or a ~/.pgpass of the
operator's pod would be used for a tenant's server. So every parameter that has such a default is given a value. And
`connect_timeout` bounds the attempt at one address, while a tenant's name may stand for any number of addresses, and a server
may continue talking without ever being ready: so the attempt as a whole is bounded here, too.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions

from exactlyonce.connectors.postgres.parameters import CERTIFICATE

NOWHERE = "/nonexistent/exactlyonce"
"""The name of a file that is not there, where libpq would look for one in the home folder."""

_MOST_ABANDONED, _MOST_ABANDONED_TOGETHER = 2, 16

_DEFAULTS = {
    "hostaddr": "",
    "password": "",
    "passfile": NOWHERE,
    "channel_binding": "prefer",
    "options": "",
    "sslmode": "prefer",
    "sslnegotiation": "postgres",
    "sslcompression": "0",
    "sslcert": NOWHERE,
    "sslkey": NOWHERE,
    "sslcertmode": "disable",
    "sslrootcert": NOWHERE,
    "sslcrl": NOWHERE,
    "sslcrldir": "",
    "sslsni": "1",
    "ssl_min_protocol_version": "TLSv1.2",
    "ssl_max_protocol_version": "",
    "require_auth": "!gss,!sspi",
    "gssencmode": "disable",
    "krbsrvname": "postgres",
    "gssdelegation": "0",
    "load_balance_hosts": "disable",
    "requirepeer": "",
    "min_protocol_version": "3.0",
    "max_protocol_version": "3.0",
    "sslkeylogfile": "",
}
"""libpq's own defaults, written out; none of the environment, none of the home folder, and no login as the pod."""

# A service file and three settings of a session have no parameter that could stand for them.
# Source: libpq, fe-connect.c, conninfo_add_defaults and EnvironmentOptions.
_ENVIRONMENT_ALONE = ("PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR", "PGDATESTYLE", "PGTZ", "PGGEQO")


def complete(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return parameters with a value for everything that libpq would look up elsewhere, the certificate in a file."""
    given = {key: value for key, value in parameters.items() if key != CERTIFICATE}
    if CERTIFICATE in parameters:
        given["sslrootcert"] = _FILES.file_of(parameters[CERTIFICATE])
    return {**_known_defaults(), **given}


def open_within(seconds: float, parameters: Mapping[str, str]) -> psycopg2.extensions.connection:
    """Open a connection, and give it up after `seconds` whatever the server and the name service do.

    An attempt that is given up may continue for a while inside libpq; what comes of it is closed. While two to the same place
    do, no other is begun there; and while many to all places do, none to a place that has never let this process in.

    Raises:
        psycopg2.Error: what libpq says, or that the time is over.
    """
    for name in _ENVIRONMENT_ALONE:
        os.environ.pop(name, None)
    made: dict[str, Any] = complete(parameters)
    place = f"{made['user']}@{made['host']}:{made.get('port', '')}"
    return _Attempt(place, lambda: psycopg2.connect(**made)).result_within(seconds)


def _known_defaults() -> dict[str, str]:
    """The defaults that this libpq knows: an older one refuses what came later, and reads no variable for it."""
    with _GUARD:
        if not _KNOWN:
            for key, value in _DEFAULTS.items():
                try:
                    psycopg2.extensions.parse_dsn(f"{key}=''")
                except psycopg2.ProgrammingError:
                    continue
                _KNOWN[key] = value
        return dict(_KNOWN)


@dataclass
class _Attempt:
    """One attempt to connect, in a thread of its own: libpq cannot be interrupted while it connects."""

    place: str
    connect: Callable[[], psycopg2.extensions.connection]
    connection: psycopg2.extensions.connection | None = None
    problem: BaseException | None = None
    is_abandoned: bool = False
    done: threading.Event = field(default_factory=threading.Event)

    def result_within(self, seconds: float) -> psycopg2.extensions.connection:
        with _GUARD:
            is_crowded = _ABANDONED.total() >= _MOST_ABANDONED_TOGETHER and self.place not in _LET_IN
            if is_crowded or _ABANDONED.get(self.place, 0) >= _MOST_ABANDONED:
                raise psycopg2.OperationalError("earlier attempts to connect have not come to an end yet")
        threading.Thread(target=self._run, name="connect", daemon=True).start()
        try:
            self.done.wait(seconds)
        finally:
            self._let_go()
        if self.problem is not None:
            raise self.problem
        if self.connection is None:
            raise psycopg2.OperationalError(f"no session within {seconds:g} seconds")
        return self.connection

    def _let_go(self) -> None:
        with _GUARD:
            if not self.done.is_set():
                self.is_abandoned = True
                _ABANDONED[self.place] += 1

    def _run(self) -> None:
        connection: psycopg2.extensions.connection | None = None
        problem: BaseException | None = None
        try:
            connection = self.connect()
        except BaseException as caught:  # it is raised where the connection is wanted
            problem = caught
        with _GUARD:
            if connection is not None:
                _LET_IN.add(self.place)
            if not self.is_abandoned:
                self.connection, self.problem = connection, problem
                self.done.set()
                return
            _ABANDONED[self.place] -= 1
            if not _ABANDONED[self.place]:
                del _ABANDONED[self.place]
        if connection is not None:
            connection.close()


@dataclass
class _CertificateFiles:
    """Certificates in files, named by their content, in a folder of this process alone."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    folder: tuple[int, Path] | None = None

    def file_of(self, certificates: str) -> str:
        """Return the file that holds the certificates; it is recreated where something has removed it."""
        with self.guard:
            # A process that was forked has the name of its parent's folder, which goes with the parent.
            if self.folder is None or self.folder[0] != os.getpid() or not self.folder[1].is_dir():
                self.folder = (os.getpid(), Path(tempfile.mkdtemp(prefix="exactlyonce-trust-")))
            content = certificates.encode()
            file = self.folder[1] / f"{hashlib.sha256(content).hexdigest()}.pem"
            if not file.exists():
                beside = file.with_suffix(".new")
                beside.write_bytes(content)
                beside.replace(file)
            return str(file)

    def remove(self) -> None:
        """Remove the folder of this process."""
        if self.folder is not None and self.folder[0] == os.getpid():
            shutil.rmtree(self.folder[1], ignore_errors=True)


_GUARD = threading.Lock()
_KNOWN: dict[str, str] = {}
_ABANDONED: Counter[str] = Counter()
_LET_IN: set[str] = set()
_FILES = _CertificateFiles()
atexit.register(_FILES.remove)
