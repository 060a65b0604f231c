"""The kinds of resource that `scripts.generate_crd` makes definitions of: names, columns, rules, and where each is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exactlyonce.api.immutable import update_rules
from exactlyonce.api.resource import API_VERSION, KIND
from exactlyonce.api.spec import StreamSpec
from exactlyonce.api.status import StreamStatus
from exactlyonce.api.stream_replay import IMMUTABLE, REPLAY_KIND, REPLAY_PLURAL, StreamReplaySpec
from exactlyonce.api.stream_replay_status import ReplayStatus
from exactlyonce.schema.model import Model
from scripts.generated import ROOT

GROUP, VERSION = API_VERSION.split("/")
TEMPLATES = ROOT / "charts" / "exactlyonce-operator" / "templates"

Column = tuple[str, str, str, str, int]
"""Name, type, JSON path, what it is, and 1 where only `-o wide` shows it."""


@dataclass(frozen=True)
class Names:
    """What a kind is called."""

    kind: str
    plural: str
    short: str
    stands_for: str


@dataclass(frozen=True)
class ResourceKind:
    """One kind: what the API server, the chart and the reference page are told of it.

    `rules` are those of the whole resource, and `spec_rules` those of the spec; `unseen` is the status of a resource that no
    operator has looked at. Without it kstatus would call such a resource Current.
    """

    names: Names
    description: str
    spec: type[Model]
    status: type[Model]
    columns: tuple[Column, ...]
    unseen: dict[str, Any]
    chart: Path
    rules: list[dict[str, str]] = field(default_factory=list)
    spec_rules: list[dict[str, str]] = field(default_factory=list)

    @property
    def crd(self) -> Path:
        """The file with its definition."""
        return ROOT / "crds" / f"{self.names.plural}.{GROUP}.yaml"


_READY = (
    "Ready",
    "string",
    '.status.conditions[?(@.type=="Ready")].status',
    "Whether the stream is as its spec describes.",
    0,
)
_AGE = ("Age", "date", ".metadata.creationTimestamp", "How long the resource has existed.", 0)

STREAM = ResourceKind(
    Names(KIND, "exactlyoncestreams", "eos", "the stream"),
    "A Spark stream whose every record takes effect in the sink exactly once.",
    StreamSpec,
    StreamStatus,
    (
        ("Phase", "string", ".status.phase", "Where the stream is in its life.", 0),
        _READY,
        ("Batch", "integer", ".status.progress.batch", "The latest batch that landed.", 0),
        (
            "Lag-Seconds",
            "integer",
            ".status.progress.lagSeconds",
            "The age of the oldest record that has not landed, in seconds.",
            0,
        ),
        ("Held", "integer", ".status.progress.heldRecords", "How many records are in quarantine.", 0),
        ("Verdict", "string", ".status.verdict.kind", "What the latest reconciliation decided.", 0),
        ("Attempt", "integer", ".status.attempt", "The latest launch of a driver.", 0),
        _AGE,
        ("Lag-Records", "integer", ".status.progress.lagRecords", "How many offsets have not landed.", 1),
        ("Lag-Files", "integer", ".status.progress.lagFiles", "How many files of a folder have not landed.", 1),
        (
            "Message",
            "string",
            '.status.conditions[?(@.type=="Ready")].message',
            "What a person should know now.",
            1,
        ),
    ),
    {"phase": "Pending", "observedGeneration": -1},
    TEMPLATES / "crd.yaml",
    rules=update_rules(),
)

REPLAY = ResourceKind(
    Names(REPLAY_KIND, REPLAY_PLURAL, "eor", "the replay"),
    "One replay of records that a stream has not landed, or a backfill of another table; each record counts exactly once.",
    StreamReplaySpec,
    ReplayStatus,
    (
        ("Stream", "string", ".spec.stream", "The stream whose records are replayed.", 0),
        ("Phase", "string", ".status.phase", "Where the replay is in its life.", 0),
        (
            "Replayed",
            "integer",
            ".status.records.replayed",
            "How many records have landed; empty where positions count no records, and the message counts ranges.",
            0,
        ),
        ("Records", "integer", ".status.records.asked", "How many were asked for.", 0),
        (
            "Put-Back",
            "integer",
            ".status.records.putBack",
            "How many of them have not landed and can be tried again.",
            0,
        ),
        ("Lost", "integer", ".status.records.lost", "How many of them the source does not hold any more.", 0),
        _AGE,
        ("Message", "string", ".status.message", "What a person should know now.", 1),
    ),
    {"phase": "Pending", "observedGeneration": -1},
    TEMPLATES / "crd-streamreplays.yaml",
    spec_rules=[IMMUTABLE],
)

KINDS = (STREAM, REPLAY)
