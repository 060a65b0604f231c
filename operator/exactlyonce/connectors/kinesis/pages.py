"""Answers of GetRecords, believed only as far as they can be true.

Records come in the order of their sequence numbers, each once, from one answer to the next as well. An answer without a next
iterator says that the shard has ended, and whoever believes that never reads it again: so it takes a second witness, which
is the children that the answer names, or the ending sequence number that ListShards has for closed shards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from exactlyonce.connectors.kinesis.answers import IteratorExpired
from exactlyonce.connectors.kinesis.client import MOST_RECORDS, KinesisClient, Page
from exactlyonce.connectors.kinesis.patience import Deadline
from exactlyonce.errors import SourceRefused, SourceUnreachable

_Answer = TypeVar("_Answer")

SEEK_SECONDS = 60.0
"""How long a shard may continue answering without records, although it says that there are more."""

SEEKS, SEEK_PAUSE_SECONDS = 5, 0.5
"""How often a place in a shard is sought where iterators expire at once, or an end is not proven."""

LOOKS_AT_TIP = 3
"""How often Kinesis has to say that nothing more is there before that is believed."""


class RecordsOutOfOrder(SourceRefused):
    """Kinesis answered a record that does not come behind those of earlier answers."""


class EndUnproven(SourceUnreachable):
    """One answer says that a shard has ended, and nothing else says so."""


def read_page(client: KinesisClient, stream: str, shard_id: str, iterator: str, most: int = MOST_RECORDS) -> Page:
    """Return one answer, whose end is proven.

    Raises:
        EndUnproven: if it is not; the shard may be asked again.
        IteratorExpired, OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    page = client.records(stream, shard_id, iterator, most)
    if page.next_iterator is None and not page.children:
        closed = {shard.id for shard in client.shards(stream) if not shard.is_open}
        if shard_id not in closed:
            raise EndUnproven(
                f"Kinesis answered as if shard {shard_id} of stream {stream} had ended, but neither names its children "
                "nor lists it as closed. The shard is asked again; check source.kinesis.endpoint if this continues."
            )
    return page


def sought(client: KinesisClient, seek: Callable[[], _Answer]) -> _Answer:
    """Return what `seek` returns, which makes an iterator of its own; it is called again where that one has expired.

    Raises:
        IteratorExpired, EndUnproven: if that continues.
    """
    for _ in range(SEEKS - 1):
        try:
            return seek()
        except IteratorExpired:
            pass
        except EndUnproven:
            client.clock.sleep(SEEK_PAUSE_SECONDS)
    return seek()


def require_order(stream: str, shard_id: str, page: Page, behind: int) -> None:
    """Require that an answer, whose records are in order (`parsed.py`), comes behind the sequence number `behind`.

    Raises:
        RecordsOutOfOrder: naming both records.
    """
    if page.records and page.records[0].sequence_number <= behind:
        raise RecordsOutOfOrder(
            f"Kinesis answered record {page.records[0].sequence_number} of shard {shard_id} of stream {stream} behind record "
            f"{behind}, so a record would be read twice or in the wrong order; nothing of that answer was taken. Check what is "
            "at source.kinesis.endpoint if this happens again."
        )


def first_page(
    client: KinesisClient,
    stream: str,
    shard_id: str,
    iterator: str,
    most: int = MOST_RECORDS,
    deadline: Deadline | None = None,
) -> Page:
    """Return the first page with records, or an empty one at the tip or the end of the shard.

    Kinesis may answer empty pages before either, and the tip is looked at more than once, as much depends on it.

    Raises:
        SourceUnreachable: if there is neither within `SEEK_SECONDS`, or before the deadline.
        OriginMissing, SourceRefused: by situation.
    """
    tips, give_up = 0, Deadline.within(client.clock, SEEK_SECONDS)
    while not give_up.has_passed:
        if deadline is not None:
            deadline.require(f"shard {shard_id} of stream {stream} answers without records")
        page = read_page(client, stream, shard_id, iterator, most)
        tips += not page.milliseconds_behind
        if page.records or page.next_iterator is None or tips == LOOKS_AT_TIP:
            return page
        iterator = page.next_iterator
    raise SourceUnreachable(
        f"Shard {shard_id} of stream {stream} has answered without records for {SEEK_SECONDS:.0f} s, although it says that "
        "there are more; it is asked again."
    )
