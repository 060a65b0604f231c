"""Files on S3: whose login Spark has for them, and that nothing of the operator opens their folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exactlyonce.api.places_on_s3 import login_to_s3
from exactlyonce.api.resource import parse_stream
from exactlyonce.connectors.files.connector import FILES, address_of
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce.errors import SecretMissing
from exactlyonce.launch.driver_document import Image
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.pod_settings import PodDefaults, resolve
from exactlyonce.positions.ranges import Epoch
from exactlyonce.schema.places import S3A_BUCKETS
from exactlyonce_spark.connectors.files.failures import FAILURES
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.s3_settings import s3_settings
from tests.resource_documents import changed, document

ON_S3 = {"path": "s3a://lake/orders", "endpoint": "https://s3:9000", "secretRef": {"name": "lake"}}
LOCAL, CLAIM = {"local": {"path": "/c"}}, {"volume": {"claimName": "c", "path": "/c/orders"}}
LEDGER = {"postgres": {"secretRef": {"name": "warehouse"}}}


def spec_of(files: dict[str, Any], checkpoint: dict[str, Any]) -> Any:
    changes = {"spec.sink": {"files": files}, "spec.checkpoint": checkpoint, "spec.ledger": LEDGER}
    return parse_stream(changed(document(), changes), "the test").spec


def test_the_bucket_of_files_has_settings_of_its_own_and_the_checkpoint_keeps_its_writer() -> None:
    settings = s3_settings(spec_of(ON_S3, LOCAL))
    assert settings == {
        f"{S3A_BUCKETS}lake.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        f"{S3A_BUCKETS}lake.endpoint": "https://s3:9000",
        f"{S3A_BUCKETS}lake.endpoint.region": "us-east-1",
        f"{S3A_BUCKETS}lake.path.style.access": "false",
    }
    both = {"s3": {"location": "s3a://logs/orders", "secretRef": {"name": "lake"}}}
    buckets = {key.removeprefix(S3A_BUCKETS).split(".")[0] for key in s3_settings(spec_of(ON_S3, both))}
    assert {"lake", "logs"} <= buckets


@pytest.mark.parametrize("checkpoint", [LOCAL, CLAIM])
def test_executors_are_given_the_login_of_the_files_where_the_checkpoint_has_none(checkpoint: dict[str, Any]) -> None:
    spec = spec_of(ON_S3, checkpoint)
    login = login_to_s3(spec)
    assert login is not None
    assert login.name == "lake"
    assert login_to_s3(spec_of({"path": "s3a://lake/orders"}, checkpoint)) is None
    assert login_to_s3(spec_of({"path": "/lake/orders"}, checkpoint)) is None


def test_pods_mount_the_secret_of_the_files_and_name_it_to_executors() -> None:
    changes = {"spec.sink": {"files": ON_S3}, "spec.checkpoint": CLAIM, "spec.ledger": LEDGER}
    stream = parse_stream(changed(document(), changes), "the test")
    settings = resolve(stream, Epoch(1), "uid-1", PodDefaults("driver", Image("spark")))
    assert settings.s3_secret == "lake"
    assert "lake" in settings.secrets


def test_addresses_are_what_readers_without_spark_take() -> None:
    assert address_of(FilesSink(path="s3a://lake/orders"), "day=1/x.parquet") == "s3://lake/orders/day=1/x.parquet"
    assert address_of(FilesSink(path="file:///lake/my orders"), "x.parquet") == "/lake/my orders/x.parquet"


def test_half_a_login_is_told_before_anything_is_asked() -> None:
    for sink, words in (
        (FilesSink(path="s3a://lake/orders"), "The secret for S3"),
        (FilesSink(path="s3a://lake/orders", secret_ref={"name": "lake-login"}), "The secret lake-login"),
    ):
        with pytest.raises(SecretMissing, match=f"{words} holds AWS_ACCESS_KEY_ID alone, .* give it both"):
            FILES.folder(sink, {"AWS_ACCESS_KEY_ID": "key"})


def test_nothing_of_the_operator_opens_the_folder_of_a_sink() -> None:
    """Its own login might be good for the files of every tenant; what it does not open needs no allowing."""
    operator = Path(__file__).resolve().parents[2] / "operator" / "exactlyonce"
    rooms = ("control", "reconcile", "reconciler", "monitor", "launch")
    texts = {file: file.read_text() for room in rooms for file in (operator / room).rglob("*.py")}
    assert len(texts) > 50
    assert [str(file) for file, text in texts.items() if "file_sink" in text or "place_on_s3" in text] == []


@pytest.mark.parametrize(
    "told",
    [
        "org.apache.hadoop.fs.s3a.AWSServiceThrottledException: PUT 0-byte object on out: Please reduce your request rate",
        "org.apache.hadoop.fs.s3a.AWSStatus500Exception: Writing Object on out/x: We encountered an internal error",
        "java.nio.file.AccessDeniedException: s3a://lake/out/x: getFileStatus: Access Denied (Service: S3, Status Code: 403)",
    ],
)
def test_a_bucket_that_does_not_answer_is_no_failure_of_the_batch(told: str) -> None:
    """So no number of such answers makes the batch a poison batch."""
    said = FAILURES.outage(f"Job aborted.\nCaused by: {told}\n\tat java.base/x")
    assert said == (
        f"S3 failed a request of Spark ({told.split(': ', 1)[1]}); nothing was landed by this. Check the bucket, the endpoint "
        "and the login."
    )


@pytest.mark.parametrize(
    ("translated", "code"),
    [
        ("java.nio.file.AccessDeniedException", "AccessDenied"),
        ("org.apache.hadoop.fs.s3a.AWSS3IOException", "InternalError"),
    ],
)
def test_objects_that_s3_does_not_remove_are_no_failure_of_the_batch(translated: str, code: str) -> None:
    """S3A tells each in a line that looks like an error of Python; with Quarantine, good batches would be passed over."""
    keys = [f"out/_exactlyonce/writing/1-1-a-b/part-{number}" for number in (0, 1)]
    listed = ", ".join(f"S3Error(Key={key}, Code={code}, Message=refused)" for key in keys)
    told = (
        f"An error occurred while calling o134.delete.\n: {translated}: Remove S3 Files on s3a://lake/out: "
        f"org.apache.hadoop.fs.s3a.impl.MultiObjectDeleteException: [{listed}] (Service: S3Client, Status Code: 200)\n"
        + "".join(f"{code}: {key}: refused\n" for key in keys)
        + "\n\tat org.apache.hadoop.fs.s3a.impl.ErrorTranslation\nCaused by: "
        f"org.apache.hadoop.fs.s3a.impl.MultiObjectDeleteException: [{listed}] (Service: S3Client)\n\t... 12 more"
    )
    ending, words = ending_of(RuntimeError(told), in_batch=True)
    assert ending is Ending.UNREACHABLE
    assert words == (
        "S3 failed a request of Spark (Remove S3 Files on s3a://lake/out: "
        f"org.apache.hadoop.fs.s3a.impl.MultiObjectDeleteException: {keys[0]}: {code}); nothing was landed by this. Check the "
        "bucket, the endpoint and the login."
    )
