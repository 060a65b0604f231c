"""Objects in a DynamoDB table: the claims of every store of an object log, and large objects.

Against moto's server, a stand-in (testbed/moto_dynamo_db.py).
"""

from __future__ import annotations

import hashlib
import random
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from exactlyonce.checkpoint.store import AlreadyExists, Created, FileMissing, FileTooLarge
from exactlyonce.connectors.dynamo_db.points import POINTS
from exactlyonce.connectors.dynamo_db.store import TableStore
from exactlyonce.connectors.object_log.documents import LogDamaged
from exactlyonce.dynamo_db.client import Clock
from exactlyonce.errors import StoreUnreachable
from testbed.dynamo_db import DynamoDb
from tests.dynamo_db_stores import TABLE, client_of, place_on
from tests.object_logs import Crashed
from tests.object_store_contract import ObjectStoreContract

PART_BYTES = 1000
"""So small that a large object of a test is small; one test has parts of the real size."""

DAY = 24 * 3600


def store_on(service: DynamoDb, name: str, **given: Any) -> TableStore:
    return TableStore(client_of(service), place_on(service, name), **{"part_bytes": PART_BYTES, **given})


def later_store(service: DynamoDb, name: str, seconds: float) -> TableStore:
    """The store of a process whose clock is ahead."""
    clock = Clock(wall_seconds=lambda: time.time() + seconds)
    return TableStore(client_of(service, clock=clock), place_on(service, name), part_bytes=PART_BYTES)


def some_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def names(service: DynamoDb, name: str) -> list[str]:
    return sorted(item["name"]["S"] for item in service.items(TABLE) if item["log"]["S"] == name)


class TestDynamoDb(ObjectStoreContract):
    """The contract on a table, each folder a value of the partition key."""

    _service: DynamoDb

    @pytest.fixture(autouse=True)
    def _with_service(self, dynamo_db: DynamoDb) -> None:
        self.__class__._service = dynamo_db

    def open_objects(self, folder: Path) -> TableStore:
        return store_on(self._service, hashlib.sha256(str(folder).encode()).hexdigest())


def test_an_object_of_any_size_is_read_as_it_was_written_and_of_two_creators_one_wins(
    dynamo_db: DynamoDb, name: str
) -> None:
    store = store_on(dynamo_db, name)
    for size in (0, 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 10 * PART_BYTES - 1):
        content = some_bytes(size)
        assert store.create(f"log/{size}", content) == Created()
        assert store.read(f"log/{size}") == content
        assert store.create(f"log/{size}", some_bytes(3000, 1)) == AlreadyExists(content)
        assert store.create(f"log/{size}", b"small") == AlreadyExists(content)
    sizes = {entry.name: entry.size_bytes for entry in store.list("log")}
    assert sizes == {str(size): size for size in (0, 1, 1000, 1001, 2000, 9999)}
    assert "log" in {entry.name for entry in store.list("") if entry.is_folder}


def test_objects_of_several_megabytes_fit_into_items_as_the_service_counts_them(dynamo_db: DynamoDb, name: str) -> None:
    store = TableStore(client_of(dynamo_db), place_on(dynamo_db, name))
    content = some_bytes(3 * 1024 * 1024 + 17)
    assert store.create("log/large", content) == Created()
    assert store.create("log/small", content[: 350 * 1024]) == Created()
    assert store.read("log/large") == content
    assert store.read("log/small") == content[: 350 * 1024]
    with pytest.raises(ClientError, match="Item size has exceeded"):
        dynamo_db.client().put_item(
            TableName=TABLE, Item={"log": {"S": name}, "name": {"S": "x"}, "content": {"B": content[: 400 * 1024]}}
        )
    for path, size in (("log/large", len(content)), ("log/small", 350 * 1024)):
        with pytest.raises(FileTooLarge, match=f"{name}/{path} has more than the {size - 1} bytes"):
            store.read(path, size - 1)


def test_what_is_deleted_takes_its_parts_along_and_leaves_those_of_others(dynamo_db: DynamoDb, name: str) -> None:
    store, other = store_on(dynamo_db, name), store_on(dynamo_db, f"{name}-other")
    for at in (store, other):
        at.create("log/1", some_bytes(5000, 1))
        at.create("log/2", some_bytes(5000, 2))
    store.delete(["log/1"])
    assert store.read("log/2") == some_bytes(5000, 2)
    store.delete(["log/2"])
    assert names(dynamo_db, name) == []
    assert [other.read(f"log/{number}") for number in (1, 2)] == [some_bytes(5000, 1), some_bytes(5000, 2)]


def dying_at(dynamo_db: DynamoDb, name: str, point: str, times: int = 1) -> TableStore:
    left = times

    def reached(at: str) -> None:
        nonlocal left
        left -= at == point
        if at == point and left == 0:
            raise Crashed(point)

    return store_on(dynamo_db, name, reached=reached)


@pytest.mark.parametrize("point", POINTS)
def test_who_dies_between_two_requests_of_a_large_object_leaves_it_whole_or_not_there_and_no_parts_for_good(
    dynamo_db: DynamoDb, name: str, point: str
) -> None:
    """Written, taken, deleted and swept by a process that dies at the point; what it leaves is cleaned up by others."""
    mine, theirs = some_bytes(3500, 1), some_bytes(3500, 2)
    keeper = store_on(dynamo_db, name)
    keeper.create("log/kept", theirs)
    keeper.create("log/taken", theirs)
    dying = dying_at(dynamo_db, name, point, 2 if point in ("dynamo.part-written", "dynamo.part-deleted") else 1)
    with pytest.raises(Crashed):
        _write_and_delete(dying, mine, is_taken=point == "dynamo.lost")
    assert keeper.read("log/taken") == theirs
    try:
        assert keeper.read("log/mine") == mine
    except FileMissing:
        assert "mine" not in {entry.name for entry in keeper.list("log")}
    assert keeper.create("log/mine", theirs) in (Created(), AlreadyExists(mine)), "the name is not blocked"
    keeper.delete(["log/mine", "log/taken"])
    later_store(dynamo_db, name, 2 * DAY).delete([])
    assert keeper.read("log/kept") == theirs
    left = names(dynamo_db, name)
    assert len(left) == 6, f"the kept object, its upload and four parts: {left}"


def _write_and_delete(store: TableStore, content: bytes, *, is_taken: bool) -> None:
    store.create("log/mine", content)
    if is_taken:
        store.create("log/taken", content)
    store.delete(["log/mine"])


def test_an_upload_of_today_is_nobodys_to_remove(dynamo_db: DynamoDb, name: str) -> None:
    with pytest.raises(Crashed):
        dying_at(dynamo_db, name, "dynamo.before-head").create("log/1", some_bytes(2500))
    later_store(dynamo_db, name, 3600).delete([])
    assert len(names(dynamo_db, name)) == 4
    later_store(dynamo_db, name, 2 * DAY).delete([])
    assert names(dynamo_db, name) == []


def test_a_writer_that_slept_for_days_cannot_make_an_object_of_parts_that_are_gone(
    dynamo_db: DynamoDb, name: str
) -> None:
    """It wakes up after its upload was taken for abandoned: before its last part, or just before the object is made."""
    for point, left in (("dynamo.part-written", 2), ("dynamo.before-head", 0)):

        def sleep(at: str, point: str = point) -> None:
            if at == point:
                later_store(dynamo_db, name, 2 * DAY).delete([])

        with pytest.raises(StoreUnreachable, match=r"log/1 were removed before it was made.* it is written again"):
            store_on(dynamo_db, name, reached=sleep).create("log/1", some_bytes(1500))
        store = store_on(dynamo_db, name)
        with pytest.raises(FileMissing):
            store.read("log/1")
        store.delete([])
        assert names(dynamo_db, name) == [], left
    assert store.create("log/1", some_bytes(1500)) == Created()


def test_an_object_whose_create_arrives_again_while_it_is_deleted_keeps_its_parts(
    dynamo_db: DynamoDb, name: str
) -> None:
    """Its writer had no answer, and sends the request again behind the deletion of what the first one has made."""
    content, key = some_bytes(2500), {"log": {"S": name}, "name": {"S": "log/1"}}
    store_on(dynamo_db, name).create("log/1", content)
    api = dynamo_db.client()
    head = api.get_item(TableName=TABLE, Key=key, ConsistentRead=True)["Item"]

    def arrive(at: str) -> None:
        if at == "dynamo.head-deleted":
            api.put_item(TableName=TABLE, Item=head)

    store_on(dynamo_db, name, reached=arrive).delete(["log/1"])
    assert store_on(dynamo_db, name).read("log/1") == content
    store_on(dynamo_db, name).delete(["log/1"])
    assert names(dynamo_db, name) == []


def test_parts_that_somebody_removed_are_told_and_never_read_as_a_shorter_object(
    dynamo_db: DynamoDb, name: str
) -> None:
    store = store_on(dynamo_db, name)
    store.create("log/1", some_bytes(3500))
    part = next(found for found in names(dynamo_db, name) if found.endswith("/0002"))
    dynamo_db.client().delete_item(TableName=TABLE, Key={"log": {"S": name}, "name": {"S": part}})
    with pytest.raises(LogDamaged, match=rf"Parts of dynamodb://us-east-1/{TABLE}/{name}/log/1 are missing; restore"):
        store.read("log/1")


def test_an_item_that_no_log_wrote_is_told_by_name(dynamo_db: DynamoDb, name: str) -> None:
    odd = {"log": {"S": name}, "name": {"S": "log/1"}, "size": {"S": "many"}, "content": {"S": "text"}}
    dynamo_db.client().put_item(TableName=TABLE, Item=odd)
    with pytest.raises(LogDamaged, match=rf"An item at dynamodb://us-east-1/{TABLE}/{name} is not what"):
        store_on(dynamo_db, name).read("log/1")


def test_a_list_of_more_than_one_answer_is_whole(dynamo_db: DynamoDb, name: str) -> None:
    store = TableStore(client_of(dynamo_db), place_on(dynamo_db, name))
    for number in range(8):
        store.create(f"log/{number:04}", bytes(300_000))
    assert store.names_after("log", "0001") == tuple(f"{number:04}" for number in range(2, 8))
    assert len(store.list("log")) == 8


def test_a_read_that_does_not_ask_for_consistency_lacks_what_was_written(dynamo_db: DynamoDb, name: str) -> None:
    """The stand-in is as bad as the service may be: every claim above would fail with such a read."""
    store_on(dynamo_db, name).create("log/1", b"x")
    key = {"log": {"S": name}, "name": {"S": "log/1"}}
    assert "Item" not in dynamo_db.client().get_item(TableName=TABLE, Key=key)
    assert "Item" in dynamo_db.client().get_item(TableName=TABLE, Key=key, ConsistentRead=True)
