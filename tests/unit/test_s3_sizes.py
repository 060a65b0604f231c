"""What S3 is asked for the size of a checkpoint, and what is made of its answers: a real client whose answers are given."""

from __future__ import annotations

import pytest
from botocore.stub import Stubber

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.assembly import checkpoint_store
from exactlyonce.checkpoint.locations import StoreInPods
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import CLIENTS
from exactlyonce.checkpoint.store import Size, SizedStore
from exactlyonce.errors import StoreUnreachable

ASKED = {"Bucket": "lake", "Prefix": "checkpoints/orders/"}


def store_of_its_own(name: str) -> S3LogStore:
    """A store whose client no other test has."""
    spec = {"location": "s3a://lake/checkpoints/orders", "endpoint": "http://s3.invalid:9000"}
    login = {"AWS_ACCESS_KEY_ID": name, "AWS_SECRET_ACCESS_KEY": "hidden"}
    store = checkpoint_store(Checkpoint.model_validate({"s3": spec}), lambda reference: login)
    assert isinstance(store, S3LogStore)
    return store


def test_objects_and_bytes_are_counted_over_all_answers_and_the_objects_themselves_are_not_asked_for() -> None:
    store = store_of_its_own("two-answers")
    names = ["stream.json", "generation-000001-a1/offsets/0", "generation-000002-a5/state/0/1/2.delta"]
    listed = [{"Key": f"checkpoints/orders/{name}", "Size": 10} for name in names]
    with Stubber(CLIENTS.get(store._service).api()) as s3:
        more = {"IsTruncated": True, "NextContinuationToken": "more"}
        s3.add_response("list_objects_v2", {"Contents": listed[:2], **more}, ASKED)
        s3.add_response("list_objects_v2", {"Contents": listed[2:]}, {**ASKED, "ContinuationToken": "more"})
        assert list(store.sizes()) == [Size(2, 20), Size(1, 10)]
        s3.assert_no_pending_responses()


def test_a_location_without_an_object_has_the_size_zero() -> None:
    store = store_of_its_own("nothing")
    with Stubber(CLIENTS.get(store._service).api()) as s3:
        s3.add_response("list_objects_v2", {}, ASKED)
        assert list(store.sizes()) == [Size(0, 0)]


def test_a_login_that_may_not_list_is_told_what_it_lacks_and_is_no_size_of_zero() -> None:
    store = store_of_its_own("denied")
    with Stubber(CLIENTS.get(store._service).api()) as s3:
        s3.add_client_error("list_objects_v2", "AccessDenied", "no", 403)
        with pytest.raises(
            StoreUnreachable, match=r"checkpoints/orders could not be measured: .*needs s3:ListBucket on lake"
        ):
            list(store.sizes())


def test_a_store_that_only_pods_reach_tells_no_size() -> None:
    assert isinstance(store_of_its_own("sized"), SizedStore)
    assert not isinstance(StoreInPods("/checkpoints/orders", "it is on a volume"), SizedStore)
