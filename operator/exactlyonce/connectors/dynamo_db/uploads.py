"""Objects that are too large for an item: their content is in the parts of an upload, and the object's own item names it.

    .parts/<upload>         the upload: for which object, begun when
    .parts/<upload>/0000    a part
    <log id>/….snapshot     the object's own item, its head

An upload has a random id, and only its own process adds to it. A head is made on two conditions, at one moment: its name is
free, and its upload is there. The item of an upload is removed on the condition, at one moment, that the head does not name it.
So whoever has removed it knows that no head names the upload and that none ever will, however long its writer was frozen, and
the parts are nobody's. A crash between any two requests leaves parts without a head, which `sweep` finds.

That rests on one thing more: the item of an upload is not made again by a request that arrives late. It is sent once; where its
outcome is unknown, another upload is begun.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from exactlyonce.connectors.dynamo_db.items import CONTENT, OBJECT, STARTED, Item, LogItems
from exactlyonce.dynamo_db.answers import ConditionFailed, TableMissing
from exactlyonce.errors import StoreForbidden, StoreUnreachable

PART_BYTES = 350 * 1024
"""An item has at most 400 KB, names and keys included. Source: Amazon DynamoDB, service quotas."""

PARTS = ".parts"
_BEGIN_TRIES = 3
_ABANDONED_SECONDS = 24 * 3600
"""So old is an upload that is taken for abandoned. Nothing is lost where its writer lives: it has to upload again."""

_MOST_SWEPT = 20
"""So many uploads are looked at in one sweep; there is one for each large object that lives."""


class UploadGone(StoreUnreachable):
    """Somebody took an upload for abandoned before its object was made."""


class Uploads:
    """The uploads of one log. `reached` is told a named point between every two requests (POINTS of this package)."""

    def __init__(
        self, items: LogItems, reached: Callable[[str], None] = lambda point: None, part_bytes: int = PART_BYTES
    ) -> None:
        self._items = items
        self._reached = reached
        self._part_bytes = part_bytes

    def is_large(self, content: bytes) -> bool:
        """Whether content needs an upload."""
        return len(content) > self._part_bytes

    def create(self, name: str, content: bytes) -> bool:
        """Make an object of a free name; False where the name is taken.

        Raises:
            StoreUnreachable: if the outcome is not known, or somebody took the upload for abandoned.
        """
        self._reached("dynamo.before-upload")
        upload = self._begin(name)
        self._reached("dynamo.upload-begun")
        for place, start in enumerate(range(0, len(content), self._part_bytes)):
            self._items.put(Item(_part(upload, place), content=content[start : start + self._part_bytes]))
            self._reached("dynamo.part-written")
        self._reached("dynamo.before-head")
        try:
            self._items.create_if_there(Item(name, size=len(content), upload=upload), _first(upload))
        except ConditionFailed as problem:
            head = self._items.get(name)
            if head is not None and head.upload == upload:
                return True  # of a request whose answer was lost
            self._reached("dynamo.lost")
            self.discard(upload, name)
            if head is None and 1 not in problem.failed:
                raise UploadGone(
                    f"The parts of {self._items.where(name)} were removed before it was made, since that took more than a day; "
                    "it is written again."
                ) from problem
            return False
        self._reached("dynamo.head-created")
        return True

    def read(self, head: Item, most_bytes: int) -> bytes | None:
        """Return the content of a large object; None where parts are missing, or there are more than its head says."""
        assert head.upload is not None
        content = bytearray()
        for place, part in enumerate(self._items.between(*_parts(head.upload), [CONTENT])):
            content += part.content or b""
            if part.name != _part(head.upload, place) or len(content) > min(head.size or 0, most_bytes):
                return None
        return bytes(content) if len(content) == head.size else None

    def discard(self, upload: str, name: str) -> bool:
        """Remove an upload unless the object of that name holds it; return whether it was removed."""
        try:
            self._items.delete_unless_named(_first(upload), by=name, upload=upload)
        except ConditionFailed:
            return False
        self._reached("dynamo.upload-ended")
        self._delete_parts(upload)
        return True

    def sweep(self) -> None:
        """Remove what crashes have left: uploads of a day ago that no object holds, and parts without an upload.

        A few are looked at each time, from a random place on.
        """
        start = f"{PARTS}/{secrets.token_hex(16)}"
        looked = 0
        for after, last in ((start, f"{PARTS}0"), (f"{PARTS}/", start)):
            while looked < _MOST_SWEPT:
                first = next(iter(self._items.between(after, last, [OBJECT, STARTED], limit=1)), None)
                if first is None or not first.name.startswith(f"{PARTS}/"):
                    break
                upload = first.name.split("/")[1]
                self._remove_if_dead(upload, first)
                self._reached("dynamo.swept")
                after = f"{_first(upload)}0"  # what sorts behind everything that begins with the upload and a slash
                looked += 1

    def _remove_if_dead(self, upload: str, first: Item) -> None:
        """Remove an upload, of which this is the first item that is there, if no object holds it or ever will."""
        if first.name != _first(upload):
            # The item of an upload is made before its parts, and is there as long as an object may name it. A list is not of
            # one moment, so it is looked for again.
            if self._items.get(_first(upload)) is None:
                self._delete_parts(upload)
            return
        name = first.object_name or "?"
        if (first.started or 0) < self._items.client.clock.wall_seconds() - _ABANDONED_SECONDS:
            head = self._items.get(name)
            if head is None or head.upload != upload:
                self.discard(upload, name)

    def _begin(self, name: str) -> str:
        """Make the item of an upload. One whose request had no answer is left: it may come to be at any time."""
        started = int(self._items.client.clock.wall_seconds())
        for last in (False,) * (_BEGIN_TRIES - 1) + (True,):
            upload = secrets.token_hex(16)
            try:
                self._items.put(Item(_first(upload), object_name=name, started=started), is_idempotent=False)
            except (StoreForbidden, TableMissing):
                raise
            except StoreUnreachable:
                if last:
                    raise
            else:
                return upload
        raise AssertionError("the last try returns or raises")

    def _delete_parts(self, upload: str) -> None:
        for part in list(self._items.between(*_parts(upload))):
            self._items.delete(part.name)
            self._reached("dynamo.part-deleted")


def _first(upload: str) -> str:
    return f"{PARTS}/{upload}"


def _part(upload: str, place: int) -> str:
    return f"{PARTS}/{upload}/{place:04}"


def _parts(upload: str) -> tuple[str, str]:
    """Return the first and the last name that a part of an upload can have."""
    return f"{PARTS}/{upload}/", f"{PARTS}/{upload}/9999"
