"""The login of a stream of Kinesis is read in one way by the operator, drivers and tasks, and never replaced by another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactlyonce.connectors.kinesis.connector import SOURCE
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.errors import SecretMissing
from exactlyonce.launch.secrets import SECRETS_FOLDER
from exactlyonce.schema.aws_login import AwsLogin
from exactlyonce_spark.connectors.kinesis.records import Place
from tests.decoders import BYTES_OPTION

WHOLE = {"AWS_ACCESS_KEY_ID": "id \n", "AWS_SECRET_ACCESS_KEY": "secret\n", "AWS_SESSION_TOKEN": " "}
SPEC = KinesisSource.model_validate({"streamName": "orders", "region": "eu-west-1", "secretRef": {"name": "kinesis"}})
PLACE = Place("orders", "orders", "eu-west-1", None, "kinesis", BYTES_OPTION)


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stream's secret is mounted; the process has a login of its own as well."""
    monkeypatch.setenv(SECRETS_FOLDER, str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "that of the process")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "that of the process")
    (tmp_path / "kinesis").mkdir()
    return tmp_path / "kinesis"


def write(folder: Path, login: dict[str, str]) -> None:
    for name, value in login.items():
        (folder / name).write_text(value)


def test_the_operator_and_a_task_read_the_same_login_of_a_secret(mounted: Path) -> None:
    write(mounted, WHOLE)
    for_operator = SOURCE.address(SPEC, WHOLE).reached
    assert PLACE.address() == for_operator
    assert for_operator.login == AwsLogin("id", "secret", None)
    assert PLACE.client() is SOURCE.address(SPEC, WHOLE).client()


@pytest.mark.parametrize("login", [{}, {"AWS_ACCESS_KEY_ID": "id"}, {**WHOLE, "AWS_SECRET_ACCESS_KEY": " \n"}])
def test_an_emptied_secret_and_half_a_login_are_refused_by_all_and_never_replaced_by_the_login_of_the_process(
    mounted: Path, login: dict[str, str]
) -> None:
    write(mounted, login)
    for read in (PLACE.client, PLACE.lasting_client, lambda: SOURCE.address(SPEC, login)):
        with pytest.raises(
            SecretMissing, match=r"secret kinesis that source\.kinesis\.secretRef names has no .*AWS_SECRET"
        ):
            read()


def test_a_rotated_secret_is_seen_by_the_next_task_and_by_a_query_that_runs(mounted: Path) -> None:
    write(mounted, WHOLE)
    before, lasting = PLACE.client(), PLACE.lasting_client()
    write(mounted, {"AWS_SECRET_ACCESS_KEY": "rotated"})
    assert PLACE.client().address.login == AwsLogin("id", "rotated")
    assert before.address.login == AwsLogin("id", "secret")
    credentials = lasting._aws.api()._request_signer._credentials
    assert credentials.secret_key == "rotated"


def test_without_a_secret_the_login_is_that_of_the_process(mounted: Path) -> None:
    place = Place("orders", "orders", "eu-west-1", None, None, BYTES_OPTION)
    assert place.address().login is None
    assert place.client()._aws.api()._request_signer._credentials.access_key == "that of the process"
