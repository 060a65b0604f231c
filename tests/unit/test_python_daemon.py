"""The daemon of Spark's Python workers: what tasks need is imported before the first worker is forked, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from exactlyonce_spark.python_daemon import import_for


def modules_after(code: str) -> set[str]:
    """Return what a process of its own has imported after running some code."""
    shown = f"{code}\nimport sys, threading\nprint(*sys.modules, threading.active_count())"
    ran = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    *modules, threads = ran.stdout.split()
    assert threads == "1", "a fork would have the thread's locks and not the thread"
    return set(modules)


def test_what_runs_tasks_has_imported_what_a_task_needs() -> None:
    found = modules_after("from exactlyonce_spark.python_daemon import import_for; import_for('pyspark.worker')")
    assert {"pyarrow", "pandas", "exactlyonce_spark.worker", "exactlyonce_spark.tasks"} <= found


def test_what_plans_a_read_imports_nothing_beforehand() -> None:
    found = modules_after(
        "from exactlyonce_spark.python_daemon import import_for; import_for('pyspark.sql.worker.create_data_source')"
    )
    assert not {"pyarrow", "pandas", "exactlyonce_spark.worker"} & found


def test_pandas_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    import_for("pyspark.worker")
