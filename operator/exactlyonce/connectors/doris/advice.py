"""What to know of a valid stream into Doris: how long its loads are remembered, whose labels meet. Performs no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from exactlyonce.connectors.doris.labels import KEPT_OF_LOCATION, is_cut, may_meet

LABELS_OF_A_DATABASE = 2000
"""So many finished loads does Doris remember by default (`label_num_threshold`); streams into one database share them."""

ABORTED_AFTER_SECONDS = 3600
"""So long does Doris keep by default what is prepared (`stream_load_default_precommit_timeout_second`)."""


def advice(spec: Any, others: Mapping[str, Any]) -> tuple[str, ...]:
    """Return sentences of advice for a stream's spec; `others` are the specs of other streams by their ids."""
    return (*_of_labels_by_time(spec), *_of_meeting_labels(spec, others))


def _of_labels_by_time(spec: Any) -> Iterable[str]:
    interval = spec.trigger.interval
    if interval is None:
        return
    remembered = int(LABELS_OF_A_DATABASE * interval.total_seconds())
    if remembered < ABORTED_AFTER_SECONDS:
        yield (
            f"trigger.interval of {interval.total_seconds():g} s uses a label of Doris for each batch, or several, and Doris "
            f"remembers {LABELS_OF_A_DATABASE} of a database: a load is forgotten after {remembered // 60} minutes or sooner, "
            "and a stream into this database that is down for longer behind a decided batch halts in doubt. Give a longer "
            "interval, or set label_num_threshold of the frontends higher."
        )


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
