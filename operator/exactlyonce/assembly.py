"""The one place that knows which connector opens the stores of a stream. Nothing is connected to yet.

The operator, the container that reconciles in a driver's pod, the driver, its tasks and the CLI all open their stores here;
they differ in where they read secrets (`Secrets`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple, cast

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.ledger import ledger_of
from exactlyonce.api.source import Source
from exactlyonce.api.spec import StreamSpec
from exactlyonce.checkpoint.folders import open_folder
from exactlyonce.checkpoint.store import MOST_BYTES, ErasableStore, LogStore
from exactlyonce.errors import Refused
from exactlyonce.ledger.connector import LedgerAddress, LedgerConnector, LedgerFleet
from exactlyonce.schema.model import SecretRef, field_name
from exactlyonce.schema.places import S3Place, is_on_s3
from exactlyonce.sink.files import FileSink
from exactlyonce.source.connector import SourceAddress, SourceConnector, SourceFleet

Secrets = Callable[[SecretRef | None], Mapping[str, str]]
"""Reads the secret that a reference names; without a reference it has nothing."""


class LedgerNotBuilt(Refused):
    """This release describes a ledger that it cannot open."""


class NoFiles(Refused):
    """The sink of a stream writes no files."""


class SourceKey(NamedTuple):
    """Which server of sources, with which login: streams with the same key share one client."""

    connector: str
    parameters: tuple[tuple[str, str], ...]
    shown: str

    def __repr__(self) -> str:
        return f"SourceKey({self.connector}, {self.shown})"


class LedgerKey(NamedTuple):
    """Which server of ledgers, with which login: streams with the same key share one connection."""

    connector: str
    parameters: tuple[tuple[str, str], ...]
    shown: str

    def __repr__(self) -> str:
        return f"LedgerKey({self.connector}, {self.shown})"


def source_address(source: Source, secrets: Secrets) -> SourceAddress:
    """Return where a source is.

    Raises:
        SecretMissing: if a secret is not there, or lacks what is needed.
    """
    return _source_connector(source.connector).address(source.spec, secrets(source.spec.secret_ref))


def ledger_address(spec: StreamSpec, secrets: Secrets) -> LedgerAddress:
    """Return where a stream's ledger is.

    Raises:
        SecretMissing, SecretRefused: if a secret is not there, lacks what is needed, or asks for what no stream may.
    """
    ledger = ledger_of(spec)
    return _ledger_connector(ledger.connector).address(ledger.spec, secrets(ledger.spec.secret_ref))


def checkpoint_store(checkpoint: Checkpoint, secrets: Secrets) -> ErasableStore:
    """Return the store that a checkpoint's location is in.

    Raises:
        SecretMissing: if a secret is not there, or holds one half of a login.
    """
    return open_folder(checkpoint.s3 or checkpoint.location, secrets(checkpoint.secret_ref), MOST_BYTES)


def folder_of_a_person(path: str, *, endpoint: str | None, region: str | None, path_style: bool) -> LogStore:
    """Return the store of any folder that a person names at the command line, on S3 with the person's own login.

    It does not belong to a stream, so it may be a whole bucket and its files may be of any size.
    """
    if not is_on_s3(path):
        return open_folder(path, {})
    place = S3Place.model_construct(
        location=path.rstrip("/"), endpoint=endpoint, region=region, path_style=path_style, secret_ref=None
    )
    return open_folder(place, {})


def source_key(spec: StreamSpec, address: SourceAddress) -> SourceKey:
    """Return which server a stream's source is measured at."""
    return SourceKey(spec.source.connector, address.key, address.shown)


def ledger_key(spec: StreamSpec, address: LedgerAddress) -> LedgerKey:
    """Return which server a stream's ledger is measured at."""
    return LedgerKey(ledger_of(spec).connector, address.server, address.shown)


def source_fleet(key: SourceKey) -> SourceFleet:
    """Return the server of a key as the monitor asks it."""
    return _source_connector(key.connector).fleet(key.parameters)


def ledger_fleet(key: LedgerKey) -> LedgerFleet:
    """Return the server of a key as the monitor asks it."""
    return _ledger_connector(key.connector).fleet(key.parameters, key.shown)


def file_sink(spec: StreamSpec) -> FileSink:
    """Return the kind of a stream's sink of files.

    Raises:
        NoFiles: if the stream's sink writes none.
    """
    name = spec.sink.connector
    found = getattr(import_module(f"exactlyonce.connectors.{name}.connector"), "FILES", None)
    if found is None:
        raise NoFiles(
            f"The stream writes to spec.sink.{field_name(name)}, which has no files; there is nothing to list."
        )
    return cast("FileSink", found)


def secrets_of(spec: StreamSpec) -> tuple[SecretRef, ...]:
    """Return every secret that a stream names for its stores, each once."""
    ledger = ledger_of(spec).spec.secret_ref
    sink = spec.sink.spec
    named = (sink.secret_ref, *sink.further_secrets, spec.source.spec.secret_ref, spec.checkpoint.secret_ref, ledger)
    return tuple(dict.fromkeys(reference for reference in named if reference is not None))


def _source_connector(name: str) -> SourceConnector:
    return cast("SourceConnector", import_module(f"exactlyonce.connectors.{name}.connector").SOURCE)


def _ledger_connector(name: str) -> LedgerConnector:
    module = f"exactlyonce.connectors.{name}.connector"
    try:
        return cast("LedgerConnector", import_module(module).LEDGER)
    except ModuleNotFoundError as problem:
        if problem.name not in (module, module.removesuffix(".connector")):
            raise  # a package that an extra installs
        raise LedgerNotBuilt(
            f"This release opens no ledger of the kind {field_name(name)}; keep the ledger elsewhere with spec.ledger, or use "
            "a sink that holds it."
        ) from problem
