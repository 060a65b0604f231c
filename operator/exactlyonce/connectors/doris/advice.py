"""What to know of a valid stream into Doris: how long its loads are remembered, whose labels meet. Performs no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from exactlyonce.connectors.doris.labels import KEPT_OF_LOCATION, is_cut, may_meet

LABELS_OF_A_DATABASE = 2000
"""So many finished loads does Doris remember by default (`label_num_threshold`); streams into one database share them."""

ABORTED_AFTER_SECONDS = 3600
"""So long does Doris keep by default what is prepared (`stream_load_default_precommit_timeout_second`)."""


SOME_PARTITIONS = 8
"""So many partitions is a batch taken to read: how many there are, only the source tells."""


def advice(spec: Any, others: Mapping[str, Any]) -> tuple[str, ...]:
    """Return sentences of advice for a stream's spec; `others` are the specs of other streams by their ids."""
    return (*_of_labels_by_time(spec, others), *_of_meeting_labels(spec, others))


def _of_labels_by_time(spec: Any, others: Mapping[str, Any]) -> Iterable[str]:
    """Say how soon labels are forgotten; a stream with `availableNow` ends, and is left out."""
    sharing = [other for other in others.values() if _shares_labels(spec, other)]
    seconds = [one.trigger.interval.total_seconds() for one in (spec, *sharing) if one.trigger.interval is not None]
    forgets = (
        f"A batch uses a label of Doris for each partition that it reads (one, if the batch is small), and Doris remembers "
        f"{LABELS_OF_A_DATABASE} of a database"
    )
    follows = "and a stream that is down for longer behind a decided batch halts in doubt"
    way_out = "set label_num_threshold of the frontends higher"
    if spec.trigger.interval is None:
        if not spec.trigger.available_now:
            yield (
                f"{forgets}: without trigger.interval batches follow each other as fast as they land, so a load may be "
                f"forgotten within minutes, {follows}. Give an interval, or {way_out}."
            )
        return
    batches_per_second = sum(1 / each if each else math.inf for each in seconds)
    remembered = LABELS_OF_A_DATABASE / batches_per_second
    partitions = int(remembered // ABORTED_AFTER_SECONDS)
    if partitions >= SOME_PARTITIONS:
        return
    shared = f" with those of {len(sharing)} more streams into this database" if sharing else ""
    begins = f"trigger.interval is {spec.trigger.interval.total_seconds():g} s{shared}"
    if partitions:
        yield (
            f"{forgets}: {begins}, so with more than {partitions} partitions per batch a load is forgotten within the hour, "
            f"{follows}. Give a longer interval, or {way_out}."
        )
    else:
        yield (
            f"{forgets}: {begins}, so a load is forgotten after {int(remembered // 60)} minutes or sooner, {follows}. Give a "
            f"longer interval, or {way_out}."
        )


def _shares_labels(spec: Any, other: Any) -> bool:
    """Whether another stream loads into the same database, by a frontend that both name."""
    if getattr(other.sink, "doris", None) is None or other.trigger.available_now:
        return False
    one, another = spec.sink.spec, other.sink.spec
    return bool(one.database == another.database and {*one.frontends} & {*another.frontends})


def _of_meeting_labels(spec: Any, others: Mapping[str, Any]) -> Iterable[str]:
    location, sink = _labelled(spec), spec.sink.spec
    if location is None:
        return
    if is_cut(location):
        yield (
            f"labelFormat: Compatible keeps the last {KEPT_OF_LOCATION} characters of {location} or a few more: a stream whose "
            "checkpoint location ends like it has the same labels, and each fails the other's batches."
        )
    for stream_id, other in others.items():
        others_location = _labelled(other)
        if others_location is None or other.sink.spec.database != sink.database:
            continue
        if may_meet(location, others_location):
            yield (
                f"labelFormat: Compatible makes the same labels of {location} and of {others_location} (stream {stream_id}), "
                f"and both load into database {sink.database}: if that is one of the same Doris, each fails the other's "
                "batches. Choose another location, or leave labelFormat out."
            )


def _labelled(spec: Any) -> str | None:
    """Return the checkpoint's location, if labels are made of it."""
    if getattr(spec.sink, "doris", None) is None or spec.sink.doris.label_format != "Compatible":
        return None
    location: str = spec.checkpoint.location
    return location
