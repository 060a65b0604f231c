"""What the state of a query depends on is in the mark that the ledger keeps of it, and nothing else is."""

from __future__ import annotations

import pytest

from exactlyonce.api.refused_conf import IN_MEMORY, ROCKSDB, STATE_STORE, WATERMARK_POLICY
from exactlyonce.api.resource import parse_stream
from exactlyonce.ledger.rows import Owner
from exactlyonce.reconcile.observe import request_of
from tests.resource_documents import BY_KEY, DELETING, Changes, document


def mark(changes: Changes) -> str:
    return request_of(parse_stream(document(changes), "the test"), Owner("cluster", "uid")).query


PLAIN = mark({})


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.outputMode": "Update", "spec.sink.postgres": BY_KEY},
        {"spec.outputMode": "Complete"},
        {"spec.sparkConf": {STATE_STORE: IN_MEMORY}},
        {"spec.sparkConf": {WATERMARK_POLICY: "max"}},
        {"spec.transform": {"sql": "SELECT 1 AS id FROM source"}},
        {"spec.source.format.type": "Csv"},
    ],
    ids=str,
)
def test_a_change_of_what_state_depends_on_changes_the_mark(changes: Changes) -> None:
    assert mark(changes) != PLAIN


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.outputMode": "Append"},
        {"spec.sparkConf": {STATE_STORE: ROCKSDB, WATERMARK_POLICY: "min", "spark.sql.shuffle.partitions": "4"}},
        {"spec.sink.postgres": BY_KEY},
        {"spec.source.format.onTombstone": "Fail"},
        {"spec.source.format.onTombstone": "Skip"},
        {"spec.recovery.onTopicDeleted": "Forget"},
    ],
    ids=str,
)
def test_a_change_of_anything_else_changes_no_mark(changes: Changes) -> None:
    assert mark(changes) == PLAIN


def test_tombstones_that_delete_change_the_mark() -> None:
    assert mark(DELETING) != mark({**DELETING, "spec.source.format.onTombstone": "Skip"})
