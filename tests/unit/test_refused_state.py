"""State that a stream cannot carry over, or that Spark cannot write: refused by the names that Spark gives its operators."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pyspark
import pytest

from exactlyonce_spark.plan import PlanRefused, _require_state_that_lasts


def of_spark(beginning: str) -> list[str]:
    """The names of Spark's operators that begin so, from its own jar."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql_2.13-*.jar")
    with ZipFile(jar) as classes:
        names = {name.rpartition("/")[2].removesuffix(".class") for name in classes.namelist()}
    return sorted(name for name in names if name.startswith(beginning) and name.endswith("Exec"))


def node(name: str, timeout: str = "NoTimeout", *, validates: bool = True) -> Any:
    named = SimpleNamespace(getSimpleName=lambda: name)
    settings = SimpleNamespace(stateStoreFormatValidationEnabled=lambda: validates)
    return SimpleNamespace(
        getClass=lambda: named, conf=lambda: settings, timeoutConf=lambda: SimpleNamespace(toString=lambda: timeout)
    )


def test_transform_with_state_is_refused_by_each_name_that_it_has() -> None:
    names = of_spark("TransformWithState")
    assert names == ["TransformWithStateExec", "TransformWithStateInPySparkExec"]
    for name in names:
        with pytest.raises(
            PlanRefused, match="uses transformWithState, which names files of its state by absolute path"
        ):
            _require_state_that_lasts(node(name))


@pytest.mark.parametrize("timeout", ["EventTimeTimeout", "ProcessingTimeTimeout"])
def test_state_in_pandas_with_a_timeout_is_refused_where_spark_would_take_it_for_damaged(timeout: str) -> None:
    (name,) = of_spark("FlatMapGroupsInPandasWithState")
    with pytest.raises(PlanRefused, match=r'formatValidation\.enabled: "false" in spec\.sparkConf'):
        _require_state_that_lasts(node(name, timeout))
    _require_state_that_lasts(node(name, timeout, validates=False))
    _require_state_that_lasts(node(name))


@pytest.mark.parametrize("name", ["StateStoreSaveExec", "FlatMapGroupsWithStateExec", "MicroBatchScanExec"])
def test_other_operators_are_not(name: str) -> None:
    _require_state_that_lasts(node(name, "EventTimeTimeout"))
