"""Makes a run of the real code follow its seed."""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from exactlyonce.api.resource import Stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.connectors.files import spark_log
from exactlyonce.reconcile import decide, finishing, launching, observe
from exactlyonce.reconcile.observation import Observation, Request
from exactlyonce.reconcile.verdicts import Decision
from tests.simulation.world import SimulatedWorld

_hash_of_query = observe._hash_of_query
_hashes: dict[int, tuple[StreamSpec, str]] = {}


def _remembered(spec: StreamSpec) -> str:
    """Return the hash of a spec, made once: there are few specs, and `resource` keeps them."""
    known = _hashes.get(id(spec))
    if known is None:
        known = _hashes[id(spec)] = (spec, _hash_of_query(spec))
    return known[1]


@contextmanager
def repeatable(seed: int, world: SimulatedWorld) -> Iterator[None]:
    """Make the random tags and tokens of the code under test follow the seed, and note what it decides."""
    tags, tokens = random.Random(seed), random.Random(seed)
    inner, requests_of = decide.decide, observe.request_of
    requests: dict[tuple[object, ...], tuple[Stream, Request]] = {}

    def listened_to(seen: Observation) -> Decision:
        decision = inner(seen)
        world.note_decision(seen, decision)
        return decision

    def request_of(stream: Stream, *given: object, **named: object) -> Request:
        """Return what a resource asks for, made once a run: there are few resources, and `resource` keeps them."""
        key = (id(stream), given, *sorted(named.items()))
        if key not in requests:
            made = requests_of(stream, *given, **named)  # type: ignore[arg-type] # as it was called
            requests[key] = (stream, replace(made, shows_landed=world.scenario.manifest))
        return requests[key][1]

    with (
        mock.patch.object(observe, "_hash_of_query", _remembered),
        mock.patch.object(secrets, "randbits", lambda bits: tags.getrandbits(bits)),
        mock.patch.object(secrets, "token_hex", lambda size: f"{tags.getrandbits(64):0{2 * size}x}"),
        mock.patch.object(launching, "decide", listened_to),
        mock.patch.object(launching, "request_of", request_of),
        mock.patch.object(finishing, "request_of", request_of),
        mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(int=tokens.getrandbits(128))),
        # Few runs come to ten batches.
        mock.patch.object(spark_log, "COMPACT_INTERVAL", 2),
    ):
        yield
