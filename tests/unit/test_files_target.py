"""The target of a driver that writes files: what it holds the folder to before its first batch. Nothing is written by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.files.columns import ColumnsUnfit, Type, digest, to_json
from exactlyonce.connectors.files.manifest import Author, DataFile, Manifest, ReplayWrite, Write
from exactlyonce.connectors.files.tenancy import FilesLost, Tenant
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.files.target import SCHEMAS, FilesTarget, WrittenFiles

COLUMNS: Mapping[str, Type] = {"id": "long"}
OTHER: Mapping[str, Type] = {"id": "string"}
DRIVER = Author(Epoch(1), "0123456789abcdef")
TENANT = Tenant("shop/orders", "ledger-1", "Parquet", (), "None")


class NoWriter:
    """Nothing is written in these tests."""

    def write(self, write: Write | ReplayWrite, rows: object) -> WrittenFiles:
        raise AssertionError("no batch runs here")

    def learn(self, manifest: Manifest) -> None:
        """Nothing is learned for that."""


def target_in(folder: Path, columns: Mapping[str, Type] = COLUMNS) -> FilesTarget:
    return FilesTarget(LocalLogStore(str(folder)), NoWriter(), TENANT, DRIVER, columns)


@pytest.fixture
def landed(tmp_path: Path) -> Mapping[BatchNumber, str]:
    """A folder in which batch 1 has landed a file with COLUMNS."""
    target_in(tmp_path).recover({}, None)
    LocalLogStore(str(tmp_path)).create("a.parquet", b"rows")
    manifest = Manifest(BatchNumber(1), 1, (DataFile("a.parquet", 4, 1, 1),), digest(COLUMNS))
    return {manifest.batch: manifest.to_json()}


def test_columns_that_do_not_fit_what_has_landed_are_refused(tmp_path: Path, landed: Mapping[BatchNumber, str]) -> None:
    target_in(tmp_path).recover(landed, BatchNumber(1))
    with pytest.raises(ColumnsUnfit, match="id was long and is string"):
        target_in(tmp_path, OTHER).recover(landed, BatchNumber(1))


@pytest.mark.parametrize("content", [to_json(OTHER), "", "[1]", "{", '[["id"]]'])
def test_columns_that_were_changed_are_not_believed_under_their_old_name(
    tmp_path: Path, landed: Mapping[BatchNumber, str], content: str
) -> None:
    """Else the rows of OTHER would land beside those of COLUMNS, and no reader could read them together."""
    file = tmp_path / SCHEMAS / f"{digest(COLUMNS)}.json"
    file.write_text(content)
    for columns in (OTHER, COLUMNS):
        with pytest.raises(FilesLost, match=rf"{file}, which holds the columns .* is missing or was changed"):
            target_in(tmp_path, columns).recover(landed, BatchNumber(1))
    with pytest.raises(FilesLost, match="is missing or was changed"):
        target_in(tmp_path).recover({}, None)
    file.unlink()
    with pytest.raises(FilesLost, match="is missing or was changed"):
        target_in(tmp_path).recover(landed, BatchNumber(1))
