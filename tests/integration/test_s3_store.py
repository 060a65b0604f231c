"""Checkpoints on S3: the claims of every store, and what a service that is far away adds. Against moto's server."""

from __future__ import annotations

import contextlib
import itertools
import random
import resource
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.assembly import checkpoint_store
from exactlyonce.checkpoint import s3_large
from exactlyonce.checkpoint.generation import (
    Generation,
    Marker,
    create_marker,
    list_generations,
    read_marker,
    write_seed,
)
from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import CLIENTS, S3Service
from exactlyonce.checkpoint.s3_conditions import PROBE, ConditionsIgnored
from exactlyonce.checkpoint.scratch import ScratchFull
from exactlyonce.checkpoint.state import Readable, read_generation
from exactlyonce.checkpoint.store import AlreadyExists, Created, Entry, FileTooLarge
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.errors import StoreForbidden, StoreUnreachable
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions
from testbed.s3 import S3
from tests.log_store_contract import ConcurrentLogStoreContract, ErasableStoreContract, OutputStoreContract
from tests.object_store_contract import ObjectStoreContract
from tests.other_server import answering
from tests.s3_stores import BUCKET, service_of


def open_at(endpoint: str, secret: dict[str, str], location: str) -> S3LogStore:
    return S3LogStore(location, S3Service.of(endpoint, None, path_style=True, secret=secret))


class TestS3(ErasableStoreContract, ConcurrentLogStoreContract, ObjectStoreContract, OutputStoreContract):
    """The contract on a bucket, each folder a prefix of its own."""

    _s3: S3

    @pytest.fixture(autouse=True)
    def _with_service(self, s3: S3) -> None:
        self.__class__._s3 = s3

    def open_store(self, folder: Path) -> S3LogStore:
        opens, location = self.name_of_store(folder)
        return opens(location)

    def open_objects(self, folder: Path) -> S3LogStore:
        return self.open_store(folder)

    def open_output(self, folder: Path) -> S3LogStore:
        return self.open_store(folder)

    def name_of_store(self, folder: Path) -> tuple[Callable[[str], S3LogStore], str]:
        return partial(open_at, self._s3.endpoint, self._s3.secret()), f"s3a://{BUCKET}/contract{folder}"


def test_a_location_names_bucket_and_prefix_with_or_without_a_slash_at_its_end(s3: S3, location: str) -> None:
    S3LogStore(f"{location}/", service_of(s3)).create("g/metadata", b"one")
    assert S3LogStore(location, service_of(s3)).read("g/metadata") == b"one"
    key = f"{location.removeprefix('s3a://lake/')}/g/metadata"
    assert s3.client().get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"one"


def test_hadoops_marks_of_folders_are_no_entries(s3: S3, store: S3LogStore, location: str) -> None:
    prefix = location.removeprefix(f"s3a://{BUCKET}/")
    for mark in ("", "generation-000001-a1/", "generation-000001-a1/offsets/"):
        s3.client().put_object(Bucket=BUCKET, Key=f"{prefix}/{mark}", Body=b"")
    store.create("generation-000001-a1/offsets/0", b"v1")
    assert store.list("generation-000001-a1/offsets") == (Entry("0", 2, False),)
    assert [entry.name for entry in store.list("generation-000001-a1")] == ["offsets"]
    assert [(entry.name, entry.is_folder) for entry in store.list("")] == [("generation-000001-a1", True)]


def test_a_folder_of_more_entries_than_one_answer_holds_is_listed_whole_and_nothing_is_left_of_it_when_it_is_removed(
    s3: S3, store: S3LogStore, location: str
) -> None:
    client, prefix = s3.client(), location.removeprefix(f"s3a://{BUCKET}/")
    store.create("stream.json", b"{}")
    for number in range(1005):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/g/offsets/{number}", Body=b"x")
    assert {entry.name for entry in store.list("g/offsets")} == {str(number) for number in range(1005)}

    assert not store.remove("g", lambda: True), "a page has gone, and there is more"
    assert [entry.name for entry in store.list("g")] == ["offsets"]
    assert store.remove("g")
    store.remove("stream.json")
    assert client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/")["KeyCount"] == 0


def test_a_generation_is_seeded_and_read_back(store: S3LogStore) -> None:
    generation = Generation(3, Epoch(17))
    positions = Positions({Partition("orders", 0): 42, Partition("orders", 1): 7})
    write_seed(store, CODEC, generation, BatchNumber(9), positions, 8)
    assert list_generations(store) == (generation,)
    seeded = read_generation(store, CODEC, generation.folder)
    assert isinstance(seeded, Readable)
    assert (seeded.planned, seeded.checkpointed, seeded.planned_end) == (9, 9, positions)


def test_of_two_streams_that_mark_one_location_both_learn_whose_it_is(s3: S3, store: S3LogStore, location: str) -> None:
    mine, theirs = Marker("shop/orders", "token-1"), Marker("shop/other", "token-2")
    assert create_marker(store, mine) == mine
    assert create_marker(S3LogStore(location, service_of(s3)), theirs) == mine
    assert read_marker(store) == mine


def test_the_object_that_proves_conditions_is_hidden_from_who_lists(s3: S3, store: S3LogStore, location: str) -> None:
    store.create("stream.json", b"{}")
    assert [entry.name for entry in store.list("")] == ["stream.json"]
    assert store.create(PROBE, b"") in (Created(), AlreadyExists(b""))


def test_a_service_that_ignores_conditions_is_refused_before_anything_is_overwritten(tmp_path: Path) -> None:
    with S3(tmp_path / "older", ignores_conditions=True) as older:
        older.create_bucket(BUCKET)
        older.client().put_object(Bucket=BUCKET, Key="orders/stream.json", Body=b"another stream's")
        store = S3LogStore(f"s3a://{BUCKET}/orders", service_of(older))
        with pytest.raises(ConditionsIgnored, match=f"{older.endpoint} ignores If-None-Match .* conditional writes"):
            store.create("stream.json", b"mine")
        with pytest.raises(ConditionsIgnored):
            store.replace("stream.json", b"another stream's", b"mine")
        with pytest.raises(ConditionsIgnored):
            ObjectLogLedger(ObjectLog(store, "ledger")).prepare()
        assert store.read("stream.json") == b"another stream's"
        assert store.tree("ledger") == {}


def test_a_bucket_that_is_not_there_is_told_by_name(s3: S3) -> None:
    store = S3LogStore("s3a://nowhere/orders", service_of(s3))
    for act in (lambda: store.list(""), lambda: store.read("x"), lambda: store.create("x", b"")):
        with pytest.raises(StoreUnreachable, match=r"there is no bucket nowhere; make it, or correct location"):
            act()


def test_a_service_that_is_gone_is_unreachable_and_not_empty(tmp_path: Path) -> None:
    with S3(tmp_path / "gone") as gone:
        gone.create_bucket(BUCKET)
        store = S3LogStore(f"s3a://{BUCKET}/orders", service_of(gone))
        store.create("stream.json", b"one")
        gone.end()
        for act in (
            lambda: store.list(""),
            lambda: store.read("x"),
            lambda: store.replace("stream.json", b"one", b"2"),
        ):
            with pytest.raises(StoreUnreachable, match=f"check that {gone.endpoint} is reachable"):
                act()


def test_what_another_server_answers_is_shown_to_nobody() -> None:
    """Whoever may name an endpoint could read, from the operator's network, what is not meant for them."""
    login = {"AWS_ACCESS_KEY_ID": "of-a-tenant", "AWS_SECRET_ACCESS_KEY": "of-a-tenant"}
    with answering(b"<html>internal-canary") as endpoint:
        store = open_at(endpoint, login, "s3a://lake/x")
        with pytest.raises(StoreUnreachable, match="could not be listed") as told:
            store.list("")
    assert "canary" not in str(told.value)


def test_a_service_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    with S3(tmp_path / "frozen") as frozen:
        frozen.create_bucket(BUCKET)
        store = S3LogStore(f"s3a://{BUCKET}/orders", replace(service_of(frozen), read_seconds=1))
        store.create("stream.json", b"one")
        frozen.freeze()
        with pytest.raises(StoreUnreachable, match="could not be read"):
            store.read("stream.json")
        frozen.thaw()
        assert store.read("stream.json") == b"one"


def test_an_object_that_is_larger_than_any_of_ours_is_not_read_and_told_by_name(s3: S3, location: str) -> None:
    """Whoever may write to a tenant's bucket could otherwise end the operator of everybody."""
    store = S3LogStore(location, service_of(s3), most_bytes=1000)
    store.create("fits", b"x" * 1000)
    assert len(store.read("fits")) == 1000
    S3LogStore(location, service_of(s3)).create("large", b"x" * 1001)
    for act in (
        lambda: store.read("large"),
        lambda: store.create("large", b"ours"),
        lambda: store.replace("large", b"before", b"ours"),
    ):
        with pytest.raises(
            FileTooLarge,
            match=f"{location}/large has more than the 1000 bytes that such a file may have, so no driver wrote it",
        ):
            act()
    assert len(S3LogStore(location, service_of(s3)).read("large")) == 1001


def test_an_answer_without_an_end_is_left_at_the_bound_whatever_length_it_claims() -> None:
    sent = 0

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal sent
            self.send_response(200)
            self.send_header("ETag", '"0"')
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while sent < 1 << 30:
                    sent += self.wfile.write(b"x" * (1 << 20))

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        login = {"AWS_ACCESS_KEY_ID": "of-a-tenant", "AWS_SECRET_ACCESS_KEY": "of-a-tenant"}
        place = {"location": "s3a://lake/x", "endpoint": f"http://127.0.0.1:{server.server_port}", "pathStyle": True}
        store = checkpoint_store(
            Checkpoint.model_validate({"s3": place}), lambda reference: login
        )  # as the operator opens it
        with pytest.raises(FileTooLarge, match="has more than the 33554432 bytes"):
            store.read("stream.json")
        server.shutdown()
    assert sent < 1 << 30


def test_a_file_whose_answers_all_break_off_is_unreachable() -> None:
    class Breaking(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("ETag", '"0"')
            self.send_header("Content-Length", "100")
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(b"a part")

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Breaking) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        login = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        store = open_at(f"http://127.0.0.1:{server.server_port}", login, "s3a://lake/x")
        with (
            pytest.raises(StoreUnreachable, match=r"s3a://lake/x/large could not be read: .* is reachable"),
            store.fetched("large"),
        ):
            pass
        server.shutdown()


def test_a_large_object_is_written_copied_and_fetched_in_parts_and_a_part_that_fails_leaves_nothing(
    s3: S3, store: S3LogStore, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_large, "PART_BYTES", 5 << 20)
    content = random.Random(7).randbytes((12 << 20) + 17)
    (tmp_path / "file").write_bytes(content)
    store.put(tmp_path / "file", "large")
    store.copy("large", "copied")
    with store.fetched("copied") as file:
        assert file.read_bytes() == content
    keys = {path: f"{location.removeprefix(f's3a://{BUCKET}/')}/{path}" for path in ("large", "copied", "cut short")}
    client = s3.client()
    for path in ("large", "copied"):
        assert client.head_object(Bucket=BUCKET, Key=keys[path])["ETag"].strip('"').endswith("-3"), "three parts"

    api, asked = CLIENTS.get(store._service).api(), itertools.count()
    upload_part = api.upload_part

    def second_fails(**part: Any) -> Any:
        if next(asked) == 1:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "UploadPart")
        return upload_part(**part)

    monkeypatch.setattr(api, "upload_part", second_fails)
    with pytest.raises(StoreForbidden, match="cut short could not be written"):
        store.put(tmp_path / "file", "cut short")
    assert "cut short" not in {entry.name for entry in store.list("")}
    uploads = client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
    assert [upload for upload in uploads if upload["Key"] == keys["cut short"]] == []


def test_a_disk_without_room_for_a_file_of_s3_is_told_as_such(store: S3LogStore) -> None:
    store.create("large", b"x" * 10_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with (
            pytest.raises(ScratchFull, match=r"no room for temporary files on this machine \(File too large\)"),
            store.fetched("large"),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_resource_says_which_store_its_location_is_in(s3: S3, location: str, tmp_path: Path) -> None:
    on_s3 = Checkpoint.model_validate({"s3": {"location": location, "endpoint": s3.endpoint, "pathStyle": True}})
    opened = checkpoint_store(on_s3, lambda reference: s3.secret())
    assert opened.create("stream.json", b"one") == Created()
    assert opened.location == location
    local = Checkpoint.model_validate({"local": {"path": str(tmp_path)}})
    assert isinstance(checkpoint_store(local, lambda reference: {}), LocalLogStore)
