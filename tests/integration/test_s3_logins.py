"""Which login reaches a bucket, what it lacks, and that a rotated one is used; no message shows one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import CLIENTS, S3Service
from exactlyonce.checkpoint.store import AlreadyExists, Created, FileMissing, FolderStore
from exactlyonce.connectors.files.connector import FILES
from exactlyonce.connectors.files.manifest import MARKER
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce.connectors.files.tenancy import PathNotWritable, Tenant, take_place
from exactlyonce.errors import SecretMissing, StoreForbidden, StoreUnreachable
from testbed.s3 import S3
from tests.s3_stores import BUCKET, login_of, service_of


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3, dict[str, dict[str, str]]]]:
    """A service that checks logins and rights: `reader` may only read, `writer` may read and write below orders/.

    `lake` may do both below orders/lake/ alone.
    """
    with S3(tmp_path_factory.mktemp("guarded")) as service:
        service.create_bucket(BUCKET)
        service.client().put_object(Bucket=BUCKET, Key="orders/stream.json", Body=b"one")
        listing = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{BUCKET}"}
        reading = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/orders/*"}
        writing = {"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{BUCKET}/orders/*"}
        in_lake = {
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject"],
            "Resource": f"arn:aws:s3:::{BUCKET}/orders/lake/*",
        }
        logins = {
            "reader": login_of(service, "reader", [listing, reading]),
            "writer": login_of(service, "writer", [listing, reading, writing]),
            "lake": login_of(service, "lake", [listing, in_lake]),
        }
        service.guard()
        with pytest.raises(ClientError):
            service.client().list_buckets()
        yield service, logins


def test_a_login_that_may_not_write_is_told_what_it_lacks(guarded: tuple[S3, dict[str, dict[str, str]]]) -> None:
    s3, logins = guarded
    store = S3LogStore(f"s3a://{BUCKET}/orders", service_of(s3, **logins["reader"]))
    assert store.read("stream.json") == b"one"
    with pytest.raises(StoreUnreachable, match=r"access is denied .* the login needs .* s3:PutObject"):
        store.create("new", b"")


def test_a_login_that_may_not_delete_is_told_what_it_lacks(guarded: tuple[S3, dict[str, dict[str, str]]]) -> None:
    s3, logins = guarded
    store = S3LogStore(f"s3a://{BUCKET}/orders", service_of(s3, **logins["reader"]))
    with pytest.raises(StoreUnreachable, match=r"could not be removed: access is denied .* s3:DeleteObject"):
        store.remove("stream.json")
    assert store.read("stream.json") == b"one"


def test_a_login_that_may_not_write_is_told_so_of_a_whole_file_too(
    guarded: tuple[S3, dict[str, dict[str, str]]], tmp_path: Path
) -> None:
    s3, logins = guarded
    store = S3LogStore(f"s3a://{BUCKET}/orders", service_of(s3, **logins["reader"]))
    (tmp_path / "file").write_bytes(b"merged")
    with pytest.raises(StoreForbidden, match=r"orders/new could not be written: access is denied .* s3:PutObject"):
        store.put(tmp_path / "file", "new")


def test_a_login_with_the_rights_that_are_told_can_do_all_that_is_needed(
    guarded: tuple[S3, dict[str, dict[str, str]]],
) -> None:
    s3, logins = guarded
    store = S3LogStore(f"s3a://{BUCKET}/orders", service_of(s3, **logins["writer"]))
    assert store.create("g/offsets/0", b"v1") == Created()
    assert store.create("g/offsets/0", b"v2") == AlreadyExists(b"v1")
    with pytest.raises(FileMissing):
        store.read("g/offsets/1")


TENANT = Tenant("shop/orders", "ledger-1", "Parquet", (), "SparkMetadata")


def lake_of(s3: S3, login: Mapping[str, str], folder: str) -> FolderStore:
    """The folder of a files sink, as its driver opens it."""
    sink = FilesSink(path=f"s3a://{BUCKET}/orders/{folder}", endpoint=s3.endpoint, path_style=True)
    return FILES.folder(sink, login).store


def test_a_files_sink_that_may_not_write_to_its_folder_is_told_what_it_lacks_and_nothing_is_written(
    guarded: tuple[S3, dict[str, dict[str, str]]],
) -> None:
    s3, logins = guarded
    with pytest.raises(PathNotWritable, match=r"cannot be written: .*access is denied .* s3:PutObject") as told:
        take_place(lake_of(s3, logins["reader"], "not-mine"), TENANT)
    assert logins["reader"]["AWS_SECRET_ACCESS_KEY"] not in str(told.value)
    assert lake_of(s3, logins["writer"], "not-mine").tree("") == {}


def test_a_files_sink_needs_no_right_above_its_folder(guarded: tuple[S3, dict[str, dict[str, str]]]) -> None:
    s3, logins = guarded
    lake = lake_of(s3, logins["lake"], "lake")
    with pytest.raises(StoreForbidden):
        S3LogStore(f"s3a://{BUCKET}/orders", service_of(s3, **logins["lake"])).read("stream.json")
    take_place(lake, TENANT)
    assert Tenant.parsed(lake.read(MARKER)) == TENANT


@pytest.mark.parametrize("wrong", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_a_wrong_login_is_told_without_showing_it(guarded: tuple[S3, dict[str, dict[str, str]]], wrong: str) -> None:
    s3, logins = guarded
    login = {**logins["writer"], wrong: "WRONGWRONGWRONGWRONG"}
    with pytest.raises(StoreUnreachable, match=r"the login is not accepted .* correct the secret") as told:
        S3LogStore(f"s3a://{BUCKET}/orders", service_of(s3, **login)).read("stream.json")
    assert logins["writer"]["AWS_SECRET_ACCESS_KEY"] not in str(told.value)


@pytest.fixture
def login_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file in which this process finds its own login; there is none yet, and no other way to one."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path / "credentials"


def write_login(file: Path, login: Mapping[str, str]) -> None:
    """Write a login as the AWS libraries read it."""
    file.write_text("\n".join(["[default]", *(f"{key.lower()} = {value}" for key, value in login.items())]))


def test_no_login_at_all_is_told_and_one_that_is_given_later_is_used(s3: S3, login_file: Path) -> None:
    store = S3LogStore(f"s3a://{BUCKET}/orders", S3Service.of(s3.endpoint, "eu-north-1", path_style=True, secret={}))
    for _ in range(2):
        with pytest.raises(StoreUnreachable, match=r"there is no login; name a secret in secretRef"):
            store.list("")
    write_login(login_file, s3.secret())
    assert store.list("nothing") == ()


def test_a_login_that_this_process_found_for_one_service_is_looked_for_again_for_another(
    s3: S3, login_file: Path
) -> None:
    write_login(login_file, s3.secret())
    found = S3LogStore(f"s3a://{BUCKET}/orders", S3Service.of(s3.endpoint, "eu-west-1", path_style=True, secret={}))
    assert found.list("nothing") == ()
    login_file.unlink()
    other = S3LogStore(f"s3a://{BUCKET}/orders", S3Service.of(s3.endpoint, "eu-west-2", path_style=True, secret={}))
    with pytest.raises(StoreUnreachable, match="there is no login"):
        other.list("nothing")


def test_a_login_of_this_process_that_was_rotated_is_taken_up_once_the_old_one_is_refused(
    guarded: tuple[S3, dict[str, dict[str, str]]], login_file: Path
) -> None:
    s3, logins = guarded
    write_login(login_file, {**logins["writer"], "AWS_SECRET_ACCESS_KEY": "WRONGWRONGWRONGWRONG"})
    store = S3LogStore(f"s3a://{BUCKET}/orders", S3Service.of(s3.endpoint, None, path_style=True, secret={}))
    with pytest.raises(StoreUnreachable, match="the login is not accepted"):
        store.read("stream.json")
    write_login(login_file, logins["writer"])
    assert store.read("stream.json") == b"one"


def test_a_web_identity_that_is_not_accepted_is_told_as_such(
    s3: S3, store: S3LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As boto3 raises it in the middle of any call; moto's STS accepts every token."""

    def refused(**_: object) -> None:
        told = {"Code": "AccessDenied", "Message": "Not authorized to perform sts:AssumeRoleWithWebIdentity"}
        raise ClientError({"Error": told}, "AssumeRoleWithWebIdentity")

    monkeypatch.setattr(CLIENTS.get(store._service).api(), "get_object", refused)
    with pytest.raises(StoreUnreachable, match=r"web identity is not accepted \(Not authorized .* that role trusts"):
        store.read("stream.json")


def test_half_a_login_is_refused_by_name() -> None:
    with pytest.raises(SecretMissing, match="AWS_ACCESS_KEY_ID alone"):
        S3Service.of(None, None, path_style=False, secret={"AWS_ACCESS_KEY_ID": "x"})


def test_a_login_is_not_shown_by_what_holds_it(s3: S3) -> None:
    assert s3.secret_key not in repr(service_of(s3))


def test_a_rotated_login_is_used_by_the_next_one_who_opens_the_store(
    guarded: tuple[S3, dict[str, dict[str, str]]],
) -> None:
    s3, logins = guarded
    old = {**logins["writer"], "AWS_SECRET_ACCESS_KEY": "WRONGWRONGWRONGWRONG"}
    with pytest.raises(StoreUnreachable):
        S3LogStore(f"s3a://{BUCKET}/orders", service_of(s3, **old)).read("stream.json")
    assert S3LogStore(f"s3a://{BUCKET}/orders", service_of(s3, **logins["writer"])).read("stream.json") == b"one"
