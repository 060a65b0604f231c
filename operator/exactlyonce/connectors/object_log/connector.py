"""The object log as a ledger outside of Spark: where it is, and what opens it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakValueDictionary

from exactlyonce.checkpoint.folders import open_folder
from exactlyonce.checkpoint.store import MOST_BYTES, ObjectStore
from exactlyonce.connectors.object_log.fleet import ObjectLogFleet
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.connectors.object_log.spec import ObjectLogLedger as LedgerInAFolder
from exactlyonce.ledger.connector import Use
from exactlyonce.schema.places import S3_PREFIX, S3_SECRET_KEYS, bucket_of

_LOCATION, _ENDPOINT, _REGION, _PATH_STYLE = "location", "endpoint", "region", "pathStyle"


Parameters = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ObjectLogAddress:
    """The folder of a log, `shown` to people.

    `server` is the folder with the login: a log is asked alone, since no request to a store is about two of them.
    """

    server: Parameters = field(repr=False)
    shown: str

    @property
    def key(self) -> Hashable:
        """The folder and the login."""
        return self.server

    @property
    def space(self) -> str:
        """The folder."""
        return self.shown

    def store_name(self, namespace: str) -> str:
        """Return the name of the bucket: all of its folders fail together."""
        return f"Ledgers at {_server_name(self.server)} of namespace {namespace}"

    def open(self, application: str = "exactlyonce", use: Use = Use.PASSES) -> ObjectLogLedger:
        """Return the ledger. Each request has the same limit for every use, and none waits for another transaction."""
        return ObjectLogLedger(_LOGS.at(self.server))


class _OpenLogs:
    """The logs that this process has open, so that each entry is read and kept once."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._logs: WeakValueDictionary[Parameters, ObjectLog] = WeakValueDictionary()

    def at(self, server: Parameters) -> ObjectLog:
        """Return the log in a folder; it is kept for as long as somebody uses it."""
        with self._guard:
            found = self._logs.get(server)
            if found is None:
                found = self._logs[server] = ObjectLog(_store_of(server))
            return found


class ObjectLogConnector:
    """The object log."""

    def address(self, spec: object, secret: Mapping[str, str]) -> ObjectLogAddress:
        """Return the log in a folder.

        Raises:
            SecretMissing: if the secret holds one half of a login.
        """
        assert isinstance(spec, LedgerInAFolder), "the registry gives each connector its own spec"
        location = spec.location.rstrip("/")
        named = {_LOCATION: location}
        if spec.is_on_s3:
            named |= {_ENDPOINT: spec.endpoint or "", _REGION: spec.region or "", _PATH_STYLE: str(spec.path_style)}
            named |= {key: secret[key].strip() for key in S3_SECRET_KEYS if secret.get(key, "").strip()}
        server = tuple(sorted((key, value) for key, value in named.items() if value))
        _store_of(server)
        return ObjectLogAddress(server, location)

    def fleet(self, server: Parameters, shown: str) -> ObjectLogFleet:
        """Return one log as the monitor asks it."""
        return ObjectLogFleet(_LOGS.at(server), _store_of(server), _server_name(server))


def _store_of(server: Parameters) -> ObjectStore:
    """Return the store whose location is the log's folder; nothing is connected to yet.

    Raises:
        SecretMissing: if there is one half of a login.
    """
    named = dict(server)
    log = LedgerInAFolder.model_construct(
        location=named[_LOCATION],
        endpoint=named.get(_ENDPOINT),
        region=named.get(_REGION),
        path_style=named.get(_PATH_STYLE) == str(True),
    )
    login = {key: named[key] for key in S3_SECRET_KEYS if key in named}
    return open_folder(log.folder, login, MOST_BYTES)


def _server_name(server: Parameters) -> str:
    """Return what fails together: a bucket of a service, or this machine's disk."""
    named = dict(server)
    location = named[_LOCATION]
    if not location.startswith(S3_PREFIX):
        return "this machine"
    return f"{named.get(_ENDPOINT, 'Amazon S3')} bucket {bucket_of(location)}"


_LOGS = _OpenLogs()
LEDGER = ObjectLogConnector()
