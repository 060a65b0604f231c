"""The least and the greatest position of a file, by the types in which sources write them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from exactlyonce.connectors.files.columns import OFFSET
from exactlyonce_spark.connectors.files.footers import _bounds

POSITION = 49590338271490256608559692538361571095921575989136588898 << 32 | 3


def block(least: Any, greatest: Any, annotation: str | None) -> Any:
    """A row group as Parquet's Java library shows it, with the column of positions."""
    statistics = SimpleNamespace(
        hasNonNullValue=lambda: True, genericGetMin=lambda: least, genericGetMax=lambda: greatest
    )
    column = SimpleNamespace(
        getPath=lambda: SimpleNamespace(toDotString=lambda: OFFSET),
        getStatistics=lambda: statistics,
        getPrimitiveType=lambda: SimpleNamespace(getLogicalTypeAnnotation=lambda: annotation),
    )
    return SimpleNamespace(getColumns=lambda: [column])


def binary(content: bytes) -> Any:
    return SimpleNamespace(getBytes=lambda: content, toStringUsingUTF8=lambda: content.decode())


@pytest.mark.parametrize(
    ("stored", "annotation"),
    [
        pytest.param(lambda value: binary(value.to_bytes(28, "big", signed=True)), "DECIMAL(66,0)", id="a decimal"),
        pytest.param(lambda value: binary(str(value).zfill(66).encode()), "STRING", id="a text of one width"),
        pytest.param(lambda value: value, None, id="an integer"),
    ],
)
def test_a_files_positions_are_integers_whatever_their_column_is(stored: Any, annotation: str | None) -> None:
    found = dict(_bounds(block(stored(POSITION), stored(POSITION + 5), annotation)))
    assert found == {OFFSET: (POSITION, POSITION + 5)}
