"""Labels that name neither epoch nor run (`labelFormat: Compatible`), broken on purpose: searched for where loads have such."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from exactlyonce.connectors.doris.answers import JobStatus, LabelUsed, LoadAnswer, Taken
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.doris import target
from exactlyonce_spark.connectors.doris.published_labels import published_label
from tests.simulation.shared_labels import StoreClient


@contextmanager
def what_is_under_a_shared_label_is_taken_for_ones_own() -> Iterator[None]:
    """Labels of Compatible: a load that is prepared under the label counts as this run's own, and its rows are not sent."""
    load = StoreClient.load

    def believed(self: StoreClient, label: str, columns: Sequence[str], body: Any) -> LoadAnswer:
        answer = load(self, label, columns, body)
        if isinstance(answer, LabelUsed) and answer.status is JobStatus.PRECOMMITTED:
            return Taken(answer.transaction_id or 0, len(body()), 0, 0)
        return answer

    with mock.patch.object(StoreClient, "load", believed):
        yield


@contextmanager
def rows_written_again_take_a_label_of_the_batch() -> Iterator[None]:
    """Labels of Compatible: rows that are made again have the label of the batch's first task, which another load has."""

    def of_the_first(location: str, batch: BatchNumber, part: str) -> str | None:
        return published_label(location, batch, part) or published_label(location, batch, "0-")

    with mock.patch.object(target, "published_label", of_the_first):
        yield
