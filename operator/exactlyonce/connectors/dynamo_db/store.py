"""The store of an object log over the items of a table; `items.py` tells what they are, `uploads.py` what large objects are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from exactlyonce.checkpoint.store import (
    MOST_BYTES,
    AlreadyExists,
    Created,
    CreateOutcome,
    Entry,
    FileMissing,
    FileTooLarge,
)
from exactlyonce.connectors.dynamo_db.items import SIZE, Item, LogItems
from exactlyonce.connectors.dynamo_db.uploads import PART_BYTES, Uploads
from exactlyonce.connectors.object_log.documents import LogDamaged
from exactlyonce.dynamo_db.answers import ConditionFailed
from exactlyonce.dynamo_db.client import DynamoDbClient
from exactlyonce.errors import StoreUnreachable
from exactlyonce.schema.places import TablePlace

_TRIES = 5


class TableStore:
    """An `ObjectStore` over the items of a table that have one value of the partition key; threads may share it.

    `reached` is told a named point between every two requests of a large object (POINTS of this package).
    """

    def __init__(
        self,
        client: DynamoDbClient,
        place: TablePlace,
        *,
        reached: Callable[[str], None] = lambda point: None,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._items = LogItems(client, place)
        self._uploads = Uploads(self._items, reached, part_bytes)
        self._reached = reached

    @property
    def location(self) -> str:
        """The part of the table."""
        return self._items.place.location

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """Return an object's content, or raise FileMissing."""
        before: Item | None = None
        for _ in range(_TRIES):
            head = self._items.get(path)
            if head is None:
                raise FileMissing(path)
            content = self._content(head, min(most_bytes or MOST_BYTES, MOST_BYTES))
            if content is not None:
                return content
            if head == before:
                raise LogDamaged(f"Parts of {self._items.where(path)} are missing; restore the table from a backup.")
            before = head  # it may have been deleted while its parts were read
        raise self._unsteady(path)

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Create an object unless its name is taken.

        A request whose answer was lost is sent again, and then finds what it has written: the outcome may be
        `AlreadyExists` with the very content that was given.
        """
        for _ in range(_TRIES):
            if self._put(path, content):
                return Created()
            try:
                return AlreadyExists(self.read(path))
            except FileMissing:
                continue  # whoever had created it has removed it
        raise self._unsteady(path)

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder."""
        prefix = f"{folder}/" if folder else ""
        found: dict[str, Entry] = {}
        for item in self._below(prefix, "", [SIZE]):
            name, slash, _ = item.name.removeprefix(prefix).partition("/")
            found[name] = Entry(name, 0 if slash else item.size or 0, is_folder=bool(slash))
        return tuple(sorted(found.values(), key=lambda entry: entry.name))

    def names_after(self, folder: str, after: str) -> tuple[str, ...]:
        """Return the names of a folder's objects that sort after `after`: one request for each 1 MB of them."""
        prefix = f"{folder}/" if folder else ""
        names = (item.name.removeprefix(prefix) for item in self._below(prefix, after))
        return tuple(name for name in names if name > after and "/" not in name and not name.startswith("."))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, and what crashes have left of others."""
        for path in paths:
            head = self._items.delete(path)
            if head is not None and head.upload is not None:
                self._reached("dynamo.head-deleted")
                self._uploads.discard(head.upload, path)
        self._uploads.sweep()

    def _put(self, path: str, content: bytes) -> bool:
        if self._uploads.is_large(content):
            return self._uploads.create(path, content)
        try:
            self._items.create(Item(path, size=len(content), content=content))
        except ConditionFailed:
            return False
        return True

    def _content(self, head: Item, most_bytes: int) -> bytes | None:
        """Return the content of an object; None where its parts are not there as its head says."""
        size = len(head.content) if head.content is not None else head.size or 0
        if size > most_bytes:
            raise FileTooLarge(
                f"{self._items.where(head.name)} has more than the {most_bytes} bytes that such a file may have, so no driver "
                "wrote it; remove it, or restore the original from a backup."
            )
        return head.content if head.upload is None else self._uploads.read(head, most_bytes)

    def _below(self, prefix: str, after: str, attributes: Sequence[str] = ()) -> Iterator[Item]:
        """Yield the items whose names begin with a prefix, from a name on."""
        # Names sort by their bytes: behind everything that begins with "a/" comes "a0".
        last = f"{prefix[:-1]}0" if prefix else "\U0010ffff"
        found = self._items.between(prefix + after or " ", last, attributes)
        return (item for item in found if item.name.startswith(prefix))

    def _unsteady(self, path: str) -> StoreUnreachable:
        return StoreUnreachable(f"{self._items.where(path)} comes and goes; something else writes there.")
