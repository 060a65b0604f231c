"""The stream that `exactlyonce offsets reset` is about, of a FILE or of a cluster: where it stands, where a request goes."""

from __future__ import annotations

import functools
import getpass
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from exactlyonce.api.resource import RESET_OFFSETS, Stream, parse_stream
from exactlyonce.api.source import Source
from exactlyonce.api.status import Phase
from exactlyonce.assembly import source_address
from exactlyonce.cli.explain import decide_without_acting, running_attempt
from exactlyonce.cli.local_answers import annotated
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.cli.targets import cluster_of, is_of_a_cluster, looked_at
from exactlyonce.control.cluster_reader import ClusterReader
from exactlyonce.errors import ExactlyOnceError, Refused
from exactlyonce.launch.secrets import read_secret
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.reconcile.verdicts import OffsetsReset
from exactlyonce.schema.model import field_name
from exactlyonce.source.port import Source as OpenSource

_RESTS = (Phase.SUSPENDED, Phase.HALTED)
_UNKNOWN = "somebody"
_TRIES = 3


class NotReset(Refused):
    """Nothing was written: the stream cannot be reset, or not now."""


@dataclass(frozen=True)
class Subject:
    """A stream, and how it is asked.

    `view` shows its ledger. `refuse` raises NotReset for a request that the next launch would refuse, as far as that can be
    told from here. `write` puts a request, or an empty one, where a launch finds it: `where` is that, and `follows` says when.
    """

    stream: Stream
    view: Callable[[], LedgerView | None]
    open_source: Callable[[Source], OpenSource]
    by: str
    where: str
    follows: str
    refuse: Callable[[str], None]
    write: Callable[[str], None]


def subject_of(target: str, options: Mapping[str, Any], *, at_rest: bool) -> Subject:
    """Return the stream that a command names.

    Raises:
        NotReset: with `at_rest`, if a driver runs or may be started at any time.
        ExactlyOnceError: if the stream cannot be read.
    """
    if is_of_a_cluster(target):
        return _in_cluster(target, options, at_rest=at_rest)
    return _of_file(target, options, at_rest=at_rest)


def _of_file(target: str, options: Mapping[str, Any], *, at_rest: bool) -> Subject:
    opened = looked_at(target, options)
    stream, running = opened.stream, running_attempt(opened) if at_rest else None
    if running is not None:
        raise NotReset(
            f"The driver of attempt {running} of {stream.stream_id} runs; end `exactlyonce run` with Ctrl-C first. Nothing was "
            "written."
        )
    read = functools.partial(read_secret, options["secrets"])

    def write(text: str) -> None:
        with opened.statuses.running():
            opened.reset.write(text)

    return Subject(
        stream,
        lambda: opened.ledger.view(stream.stream_id),
        lambda source: source_address(source, read).open(),
        login_name(),
        str(opened.reset.file),
        f"It is done by the next `exactlyonce run {target}`.",
        lambda text: _refuse(opened, text),
        write if at_rest else opened.reset.write,
    )


def _refuse(opened: LocalStream, text: str) -> None:
    """Decide as the next launch would, with this request."""
    asked = replace(opened, stream=annotated(opened.stream, RESET_OFFSETS, text))
    decision = decide_without_acting(asked, None)
    if not isinstance(decision.verdict, OffsetsReset):
        raise NotReset(f"{decision.verdict.message} Nothing was written.")


def _in_cluster(name: str, options: Mapping[str, Any], *, at_rest: bool) -> Subject:
    from exactlyonce.cli.cluster_offsets import cluster_ledger, cluster_secret, source_with_own_login

    cluster, namespace = cluster_of(options)
    stream = parse_stream(_document(cluster, namespace, name, at_rest=at_rest), f"{namespace}/{name}")
    where = f"spec.source.{field_name(stream.spec.source.connector)}"
    resumed = f"It is done once the stream is resumed: `exactlyonce resume {name} -n {namespace}`."
    return Subject(
        stream,
        lambda: cluster_ledger(cluster, stream).view(stream.stream_id),
        lambda source: source_with_own_login(source, functools.partial(cluster_secret, cluster, stream, where)).open(),
        person_of(cluster),
        f"the annotation {RESET_OFFSETS} of {namespace}/{name}",
        resumed if stream.spec.suspend else "The operator does it now.",
        lambda text: None,
        lambda text: _annotate(cluster, namespace, name, text, at_rest=at_rest),
    )


def _document(cluster: ClusterReader, namespace: str, name: str, *, at_rest: bool) -> dict[str, Any]:
    document = cluster.stream(namespace, name)
    phase = (document.get("status") or {}).get("phase") or Phase.PENDING
    if at_rest and phase not in _RESTS:
        raise NotReset(
            f"{namespace}/{name} is {phase}: its positions are reset while it is suspended or has halted. Run `exactlyonce "
            f"suspend {name} -n {namespace} --wait` first. Nothing was written."
        )
    return document


def _annotate(cluster: ClusterReader, namespace: str, name: str, text: str, *, at_rest: bool) -> None:
    """Write the annotation of a stream that rests still; the request itself says where the stream stood when it was made."""
    for _ in range(_TRIES):
        document = _document(cluster, namespace, name, at_rest=at_rest)
        if cluster.annotate(document, RESET_OFFSETS, text, "reset the positions of") is not None:
            return
    raise NotReset(
        f"{namespace}/{name} is being changed by somebody else all the time; nothing was written: try again."
    )


def person_of(cluster: ClusterReader) -> str:
    """Return whom the API server takes this person for, or the login of this machine where it does not tell."""
    try:
        return cluster.person() or login_name()
    except ExactlyOnceError:
        return login_name()


def login_name() -> str:
    """Return this person's login on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return _UNKNOWN
