"""Generations: the checkpoint directories of a stream, each seeded before Spark may use it.

A location holds `stream.json`, which says whose it is, and one folder per generation. A generation is written once and
never edited: a rebuilt checkpoint is a new one, and the old one stays as evidence. The folder `ledger` beside
them is the ledger's, and `source` is kept by a source that has to know more than its position.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field

from exactlyonce.api.ledger import LEDGER_FOLDER
from exactlyonce.bounded_json import parse_json
from exactlyonce.checkpoint import files
from exactlyonce.checkpoint.codec import PositionCodec
from exactlyonce.checkpoint.state import Readable, read_generation
from exactlyonce.checkpoint.store import AlreadyExists, FileMissing, LogStore
from exactlyonce.errors import Refused, StoreUnreachable
from exactlyonce.positions.ranges import BatchNumber, Epoch, Positions

MARKER = "stream.json"
SOURCE_FOLDER = "source"
"""Beside the generations: what a source in Python keeps of what it has read, good for each of them."""

_NAME = re.compile(r"generation-(\d{6,})-a(\d+)")


@dataclass(frozen=True, order=True, slots=True)
class Generation:
    """The name of one generation: its number and the attempt that made it."""

    number: int
    attempt: Epoch

    @property
    def folder(self) -> str:
        """The folder below the location."""
        return f"generation-{self.number:06d}-a{self.attempt}"

    def path(self, location: str) -> str:
        """The checkpoint directory that Spark is given."""
        return f"{location.rstrip('/')}/{self.folder}"


@dataclass(frozen=True, slots=True)
class Marker:
    """What `stream.json` says: the stream whose location this is, and the token its ledger holds.

    Whoever knows the token may adopt the location (docs/adr/0019), so it is in no text that is made of a marker.
    """

    stream_id: str
    token: str = field(repr=False)

    def render(self) -> bytes:
        """Return the content of `stream.json`."""
        return json.dumps({"streamId": self.stream_id, "token": self.token}, indent=2).encode() + b"\n"


class MarkerUnreadable(Refused):
    """`stream.json` exists and is not what this project writes."""


def parse_generation(folder: str) -> Generation | None:
    """Return the generation that a folder's name means, or None."""
    match = _NAME.fullmatch(folder)
    return Generation(int(match[1]), Epoch(int(match[2]))) if match else None


@dataclass(frozen=True, slots=True)
class Contents:
    """What one look at a location shows: generations, oldest first, and the names of what is neither ours nor hidden."""

    generations: tuple[Generation, ...]
    foreign: tuple[str, ...]
    has_marker: bool


def contents_of(store: LogStore) -> Contents:
    """List a location once."""
    entries = store.list("")
    generations = [parse_generation(entry.name) for entry in entries if entry.is_folder]
    names = [entry.name for entry in entries if not entry.name.startswith(".")]
    return Contents(
        tuple(sorted(generation for generation in generations if generation is not None)),
        tuple(
            name
            for name in names
            if name not in (MARKER, LEDGER_FOLDER, SOURCE_FOLDER) and parse_generation(name) is None
        ),
        MARKER in names,
    )


def list_generations(store: LogStore) -> tuple[Generation, ...]:
    """Return the generations at a location, oldest first, published or not."""
    return contents_of(store).generations


def read_marker(store: LogStore) -> Marker | None:
    """Return what `stream.json` says, or None where there is none.

    Raises:
        MarkerUnreadable: if the file is something else.
    """
    try:
        content = store.read(MARKER)
    except FileMissing:
        return None
    return _parse_marker(store, content)


def create_marker(store: LogStore, marker: Marker) -> Marker:
    """Create `stream.json` unless there is one, and return what it now says."""
    outcome = store.create(MARKER, marker.render())
    return _parse_marker(store, outcome.content) if isinstance(outcome, AlreadyExists) else marker


def replace_marker(store: LogStore, expected: Marker, marker: Marker) -> bool:
    """Make `stream.json` say `marker` for an adoption that a person asked for, and return whether it now does.

    It does not where it says something else than `expected`, whose token the person named: another stream has taken the
    location since.
    """
    outcome = store.create(MARKER, marker.render())
    if not isinstance(outcome, AlreadyExists):
        return True
    found = _parse_marker(store, outcome.content)
    return found == marker or (found == expected and store.replace(MARKER, outcome.content, marker.render()))


def write_seed(
    store: LogStore,
    codec: PositionCodec,
    generation: Generation,
    batch: BatchNumber,
    positions: Positions,
    shuffle_partitions: int,
    watermark_policy: str = files.DEFAULT_WATERMARK_POLICY,
) -> None:
    """Write a generation whose next batch is `batch + 1`, starting at `positions`, and read it back.

    `batch` itself is the empty batch that starts and ends at `positions`. Batch 0 is left to Spark to run, since that is when
    it makes the state of a query that keeps some; later ones are committed. Offsets come last: Spark looks at them first, so
    a seed cut short holds none and reads as no checkpoint at all. Writing again after a crash finds each file as it would
    have made it.

    Raises:
        StoreUnreachable: if the storage does not answer or what was read back is not what was written.
    """
    folder = generation.folder
    query_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{store.location}/{folder}"))
    content = {f"{folder}/metadata": files.render_metadata(query_id)}
    if batch == 0:
        content[f"{folder}/sources/0/0"] = codec.render_start(positions)
    else:
        content[f"{folder}/commits/{batch}"] = files.render_commit()
        content[f"{folder}/offsets/{batch - 1}"] = files.render_offsets(None, shuffle_partitions)
    content[f"{folder}/offsets/{batch}"] = files.render_offsets(
        codec.render_entry(positions), shuffle_partitions, watermark_policy
    )
    for path, expected in content.items():
        outcome = store.create(path, expected)
        if isinstance(outcome, AlreadyExists) and outcome.content != expected:
            raise StoreUnreachable(f"{store.location}/{path} exists with other content; it was not touched.")
    seeded = read_generation(store, codec, folder)
    if (
        not isinstance(seeded, Readable)
        or (seeded.planned, seeded.planned_end) != (batch, positions)
        or seeded.checkpointed != (batch if batch > 0 else None)
        or seeded.stateful
    ):
        raise StoreUnreachable(f"{store.location}/{folder} reads back as {seeded}, not as the seed that was written.")


def _parse_marker(store: LogStore, content: bytes) -> Marker:
    try:
        entry = parse_json(content)
        return Marker(str(entry["streamId"]), str(entry["token"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise MarkerUnreadable(
            f"{store.location}/{MARKER} is not readable as this project's marker; restore it or choose another location."
        ) from problem
