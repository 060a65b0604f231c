"""How a driver reaches the catalog of an Iceberg table and its files: by the secrets alone, which no sentence shows."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.files.manifest import Author
from exactlyonce.connectors.iceberg.spec import Catalog, CatalogInSql, IcebergSink
from exactlyonce.errors import SecretMissing, SecretRefused
from exactlyonce.positions.ranges import Epoch
from exactlyonce.schema.model import SecretRef
from exactlyonce_spark.connectors.iceberg.catalog import catalog_opener, file_options
from exactlyonce_spark.connectors.iceberg.table_log import IcebergLog, TableUnreachable

CATALOG = Catalog(sql=CatalogInSql(secret_ref=SecretRef(name="catalog")))
LOGIN = {"host": "db", "dbname": "lake", "user": "writer", "password": "s3cret"}
KEYS = {"AWS_ACCESS_KEY_ID": "id\n", "AWS_SECRET_ACCESS_KEY": "key"}


def sink(location: str = "s3a://lake/orders", **more: object) -> IcebergSink:
    return IcebergSink.model_validate(
        {"catalog": CATALOG, "table": "shop.orders", "location": location, **more}, by_name=True
    )


def test_both_logins_are_among_the_secrets_of_a_stream() -> None:
    found = sink(secret_ref=SecretRef(name="lake"))
    assert [found.secret_ref, *found.further_secrets] == [SecretRef(name="lake"), SecretRef(name="catalog")]


@pytest.mark.parametrize(
    ("login", "kind", "said"),
    [
        ({}, SecretMissing, "Secret catalog lacks host, dbname, user"),
        ({**LOGIN, "host": "/run/postgres"}, SecretRefused, "names a Unix-domain socket as host"),
        ({"uri": "postgresql://writer:s3cret@db/lake?passfile=/etc/x"}, SecretRefused, "may not set passfile"),
    ],
)
def test_the_login_to_the_catalog_is_read_as_that_of_every_database(
    login: Mapping[str, str], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        catalog_opener(sink(), login, {})
    assert "s3cret" not in str(caught.value)


def test_a_catalog_that_does_not_answer_is_told_without_the_login() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        login = {**LOGIN, "host": "127.0.0.1", "port": str(nobody.getsockname()[1])}
        opener = catalog_opener(sink("/lake/orders"), login, {})
        folder = LocalLogStore("/lake/orders")
        log = IcebergLog(
            "shop.orders", "/lake/orders", "file:///lake/orders", opener, folder, "s", Author(Epoch(1), "x")
        )
        with pytest.raises(TableUnreachable, match=r"The table shop\.orders at /lake/orders cannot be read") as caught:
            log.view("x")
    assert "refused" in str(caught.value)
    assert "s3cret" not in f"{caught.value!r}{caught.value.__cause__!r}"


def test_files_on_s3_are_opened_with_the_service_and_the_login_of_the_resource() -> None:
    told = file_options(sink(endpoint="https://s3:9000", path_style=True), KEYS)
    assert told == {
        "s3.access-key-id": "id",
        "s3.secret-access-key": "key",
        "s3.connect-timeout": "5",
        "s3.request-timeout": "30",
        "s3.force-virtual-addressing": "false",
        "s3.endpoint": "https://s3:9000",
        "s3.region": "us-east-1",
    }
    assert file_options(sink(region="eu-central-1"), {}) == {
        "s3.connect-timeout": "5",
        "s3.request-timeout": "30",
        "s3.force-virtual-addressing": "true",
        "s3.region": "eu-central-1",
    }
    assert file_options(sink("/lake/orders"), KEYS) == {}


def test_a_certificate_that_the_library_cannot_be_given_is_refused() -> None:
    with pytest.raises(SecretRefused, match=r"The secret that sink\.iceberg\.secretRef names has ca\.crt"):
        file_options(sink(), {**KEYS, "ca.crt": "-----BEGIN CERTIFICATE-----"})
