"""How often S3 is asked: what a folder with many objects must not be listed for. A real client whose answers are given."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber

from exactlyonce.checkpoint import store as limits
from exactlyonce.checkpoint.folders import open_folder
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import CLIENTS
from exactlyonce.checkpoint.s3_conditions import PROBE
from exactlyonce.connectors.files.manifest import MARKER
from exactlyonce.connectors.files.tenancy import PathOfAnother, Tenant, take_place
from exactlyonce.errors import StoreUnreachable
from exactlyonce.schema.places import S3Place

TENANT = Tenant("shop/orders", "ledger-1", "Parquet", (), "SparkMetadata")


def store_of_its_own(name: str) -> S3LogStore:
    """A store whose client no other test has."""
    place = S3Place(location="s3a://bucket/lake/eu/orders", endpoint="http://s3.invalid:9000")
    store = open_folder(place, {"AWS_ACCESS_KEY_ID": name, "AWS_SECRET_ACCESS_KEY": "hidden"})
    assert isinstance(store, S3LogStore)
    return store


def holds(content: bytes) -> dict[str, Any]:
    return {"Body": StreamingBody(BytesIO(content), len(content)), "ETag": "1"}


def of(key: str) -> dict[str, str]:
    return {"Bucket": "bucket", "Key": key}


def test_what_is_removed_is_listed_and_of_the_rest_three_keys_at_most() -> None:
    store = store_of_its_own("removes")
    with Stubber(CLIENTS.get(store._service).api()) as s3:
        s3.add_response("delete_objects", {})
        s3.add_response(
            "list_objects_v2", {"IsTruncated": False}, {"Bucket": "bucket", "Prefix": "lake/eu/orders/old/"}
        )
        first = {"Contents": [{"Key": f"lake/eu/orders/{name}"} for name in (PROBE, "a")]}
        s3.add_response("list_objects_v2", first, {"Bucket": "bucket", "Prefix": "lake/eu/orders/", "MaxKeys": 3})
        assert store.remove("old")
        s3.assert_no_pending_responses()


def test_a_folder_that_is_the_streams_own_is_taken_again_without_listing_it() -> None:
    """The login reaches this folder alone: S3 answers of the one above that it may not be read."""
    store = store_of_its_own("takes")
    with Stubber(CLIENTS.get(store._service).api()) as s3:
        s3.add_response("get_object", holds(TENANT.to_bytes()), of(f"lake/eu/orders/{MARKER}"))
        s3.add_client_error("get_object", "AccessDenied", "no", 403, expected_params=of(f"lake/eu/{MARKER}"))
        s3.add_client_error("get_object", "NoSuchKey", "no", 404, expected_params=of(f"lake/{MARKER}"))
        take_place(store, TENANT)
        s3.assert_no_pending_responses()


def test_a_folder_in_that_of_another_stream_is_refused_before_anything_is_written() -> None:
    store = store_of_its_own("inside")
    with Stubber(CLIENTS.get(store._service).api()) as s3:
        for folder in ("lake/eu/orders", "lake/eu"):
            s3.add_client_error("get_object", "NoSuchKey", "no", 404, expected_params=of(f"{folder}/{MARKER}"))
        s3.add_response("get_object", holds(b"{}"), of(f"lake/{MARKER}"))
        with pytest.raises(PathOfAnother, match="is inside s3a://bucket/lake, the folder of a stream"):
            take_place(store, TENANT)
        s3.assert_no_pending_responses()


def test_a_folder_that_is_read_whole_has_a_limit_that_says_what_to_do_and_one_that_is_walked_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MOST_FILES", 2)
    store = store_of_its_own("limits")
    page = {"Contents": [{"Key": f"lake/eu/orders/{name}", "Size": 1} for name in "abc"]}
    with Stubber(CLIENTS.get(store._service).api()) as s3:
        for _ in range(4):
            s3.add_response("list_objects_v2", page)
        assert len(dict(store.walk(""))) == 3
        for read in (store.tree, store.list, lambda folder: store.names_after(folder, "")):
            with pytest.raises(StoreUnreachable, match=r"has more than 2 files, .* or remove what does not belong"):
                read("")
