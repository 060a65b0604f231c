"""What a lease table is believed: a tenant names its endpoint, so the list of its leases may be endless, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from exactlyonce.aws.calls import Clock
from exactlyonce.connectors.kinesis.dynamo_db import DynamoDbAddress, DynamoDbClient
from exactlyonce.connectors.kinesis.lease_form import TableUnfit
from exactlyonce.connectors.kinesis.lease_table import LeaseTable
from exactlyonce.errors import StoreUnreachable


class Api:
    """Answers a Scan with `page` after `seconds`."""

    def __init__(self, seconds: float, page: Callable[[int], dict[str, Any]]) -> None:
        self.now = 0.0
        self.asked = 0
        self._seconds = seconds
        self._page = page

    def scan(self, **_: Any) -> dict[str, Any]:
        self.now += self._seconds
        self.asked += 1
        return {"ResponseMetadata": {"RequestId": "1"}, **self._page(self.asked)}


def table_of(api: Api) -> LeaseTable:
    client = DynamoDbClient(DynamoDbAddress("eu-west-1"), lambda: api, Clock(elapsed_seconds=lambda: api.now))
    return LeaseTable(client, "app")


def test_a_list_of_leases_that_comes_slowly_and_does_not_end_is_given_up_long_before_a_pass_counts_as_stuck() -> None:
    api = Api(4.0, lambda asked: {"Items": [], "LastEvaluatedKey": {"leaseKey": {"S": str(asked)}}})
    with pytest.raises(StoreUnreachable, match=r"did not list the leases in table app within 30 s"):
        table_of(api).leases()
    assert api.now <= 60.0


def test_an_item_that_is_null_is_told_as_what_no_lease_table_has() -> None:
    with pytest.raises(TableUnfit, match=r"Table app of DynamoDB in eu-west-1 is not the lease table of one stream"):
        table_of(Api(0.0, lambda _: {"Items": [None]})).leases()


@pytest.mark.parametrize("name", ["leaseOwner", "parentShardId"])
def test_leases_of_endless_texts_are_given_up_before_they_fill_the_memory(name: str) -> None:
    text = 1_000_000 * "w"

    def page(asked: int) -> dict[str, Any]:
        lease = {
            "leaseKey": {"S": f"shardId-{asked:012}"},
            "checkpoint": {"S": "TRIM_HORIZON"},
            "leaseCounter": {"N": "1"},
            name: {"SS": [text]} if name == "parentShardId" else {"S": text},
        }
        return {"Items": [lease], "LastEvaluatedKey": {"leaseKey": lease["leaseKey"]}}

    api = Api(0.01, page)
    with pytest.raises(TableUnfit, match=r"more than 8,388,608 characters of workers and shards in its leases"):
        table_of(api).leases()
    assert api.asked == 9
