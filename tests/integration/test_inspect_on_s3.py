"""`exactlyonce inspect` of folders on S3, with the login of the person who calls it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from exactlyonce.cli.main import main
from scripts.make_golden_file_queries import GOLDEN, NAMED
from testbed.s3 import S3

BUCKET = "inspected"
FOLDER = "planned"


@pytest.fixture(scope="module")
def endpoint(s3: S3) -> str:
    """Put a golden folder into a bucket, whose log names files there."""
    s3.create_bucket(BUCKET)
    client = s3.client()
    for file in (GOLDEN / FOLDER).rglob("*"):
        if file.is_file():
            content = file.read_bytes().replace(NAMED.encode(), f"s3a://{BUCKET}/{FOLDER}".encode())
            client.put_object(
                Bucket=BUCKET, Key=f"{FOLDER}/{file.relative_to(GOLDEN / FOLDER).as_posix()}", Body=content
            )
    return s3.endpoint


def run(monkeypatch: pytest.MonkeyPatch, endpoint: str, *given: str) -> Result:
    for name, value in {"AWS_ACCESS_KEY_ID": "AKIA0000000000000000", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}.items():
        monkeypatch.setenv(name, value)
    service = ("--endpoint", endpoint, "--region", "us-east-1", "--path-style")
    return CliRunner().invoke(main, ["inspect", *given, *service])


def test_a_folder_on_s3_is_compared_with_its_checkpoint(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    at = f"s3a://{BUCKET}/{FOLDER}"
    ended = run(monkeypatch, endpoint, f"{at}/output", "--checkpoint", f"{at}/checkpoint", "-o", "json")
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.stdout)
    assert (found["comparison"]["kind"], found["comparison"]["batch"]) == ("PlannedOnly", 12)
    assert len(found["output"]["orphans"]) == 1, "the files that the log names are known to be those of the bucket"


def test_a_folder_or_a_bucket_that_is_not_there_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    for location in (f"s3a://{BUCKET}/nothing", "s3a://no-such-bucket/orders"):
        ended = run(monkeypatch, endpoint, location)
        assert (ended.exit_code, len(ended.output.splitlines())) == (1, 1)
        assert location in ended.output
