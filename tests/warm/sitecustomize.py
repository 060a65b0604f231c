"""In a driver's process: takes the JVM from the test's pool instead of starting one.

Python imports this by its name when it starts. It uses nothing of the tests, which the driver cannot import.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

_POOL, _MARKER, _CRASH = "EXACTLYONCE_TEST_JVMS", "EXACTLYONCE_LAUNCH", "EXACTLYONCE_CRASH"
_OF_THE_JVM = ("spark.driver.extraClassPath", "spark.driver.extraJavaOptions", "spark.driver.memory")
_BY_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "SPARK_CONF_DIR")
_FOR_WORKERS = ("EXACTLYONCE_", "PYTHONPATH")
"""What workers have by inheritance where the JVM is the driver's own."""
_STOP_SECONDS = 30.0


def _needs_its_own(settings: Mapping[str, str]) -> bool:
    """Whether more than these settings reaches the JVM, or a task is to act on the JVM's process."""
    if any(name in os.environ for name in _BY_ENVIRONMENT):
        return True
    return any(key.startswith("spark.hadoop.fs.s3a") for key in settings) or any(
        _strikes_the_jvm(word) for word in os.environ.get(_CRASH, "").split()
    )


def _strikes_the_jvm(word: str) -> bool:
    """Whether a crash that has not happened yet strikes the JVM from a task, or freezes it with the driver."""
    point, _, how = word.partition("=")
    action, _, fired = how.partition(",")
    of_a_task = point.startswith("task.") and action == "kill-driver"
    return (of_a_task or action == "freeze") and not os.path.exists(fired)


class _Lease:
    """The JVM that this process has been lent."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(os.environ[_POOL])
        self._stream = connection.makefile("rwb")
        hidden = ("EXACTLYONCE_", "AWS_", "PYTHONPATH")
        request = {
            "settings": [(key, settings[key]) for key in _OF_THE_JVM if key in settings],
            "marker": os.environ[_MARKER],
            "environment": {key: value for key, value in os.environ.items() if not key.startswith(hidden)},
        }
        self._say(json.dumps(request))
        self.answer = json.loads(self._stream.readline())

    def give_back(self) -> None:
        """Stop what runs in it, and say so."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        session = SparkSession._instantiatedSession
        if session is not None:
            for query in session.streams.active:
                query.stop()
            session.stop()
        elif SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        self._say("clean")

    def _say(self, line: str) -> None:
        self._stream.write(line.encode() + b"\n")
        self._stream.flush()


def _change(gateway: Any) -> None:
    """Let PySpark connect to a JVM that was lent."""
    launch, leave = gateway.launch_gateway, os._exit

    def launch_gateway(conf: Any = None, popen_kwargs: Any = None) -> Any:
        settings = dict(conf.getAll())
        if _needs_its_own(settings):
            return launch(conf, popen_kwargs)
        for name, value in os.environ.items():
            if name.startswith(_FOR_WORKERS):
                conf.setIfMissing(f"spark.executorEnv.{name}", value)
        lease = _Lease(settings)
        os.environ["PYSPARK_GATEWAY_PORT"] = str(lease.answer["port"])
        os.environ["PYSPARK_GATEWAY_SECRET"] = lease.answer["secret"]

        def clean_up_and_leave(status: int) -> None:
            cleaner = threading.Thread(target=lease.give_back, daemon=True)
            cleaner.start()
            cleaner.join(_STOP_SECONDS)
            leave(status)

        os._exit = clean_up_and_leave  # type: ignore[assignment]
        return launch(conf, popen_kwargs)

    gateway.launch_gateway = launch_gateway


class _Finder(importlib.abc.MetaPathFinder):
    """Finds pyspark.java_gateway as ever, and changes it once it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "pyspark.java_gateway":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_change(module: ModuleType) -> None:
            run(module)
            _change(module)

        spec.loader.exec_module = run_and_change  # type: ignore[method-assign]
        return spec


_PROGRAMS = ("exactlyonce_spark", "exactlyonce_spark.replay_driver")

if _POOL in os.environ and any(program in sys.orig_argv for program in _PROGRAMS):
    sys.meta_path.insert(0, _Finder())
