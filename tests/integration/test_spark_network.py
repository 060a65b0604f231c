"""Spark's own network with the settings of a driver's pod: a real executor's JVM is let in with its attempt's secret alone.

No cluster is needed for that: the other side is Spark's RPC server with those settings and no scheduler behind it. Who gets
through the handshake is told that there is no scheduler; who does not, gets no answer at all.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from exactlyonce.launch.network_secret import NETWORK_FILE
from exactlyonce_spark.executor import executor_command, spark_classpath
from exactlyonce_spark.session import session_settings
from tests.unit.test_executor import ENVIRONMENT
from tests.unit.test_spark_settings import JARS, POD, in_a_pod

pytestmark = pytest.mark.timeout(600)

LET_IN = "Cannot find endpoint: spark://CoarseGrainedScheduler@"
HERE = "127.0.0.1"
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""These JVMs live for seconds."""


@dataclass(frozen=True)
class Server:
    """Spark's RPC server: where it is, and the options that the scheduler gives to executors."""

    port: int
    options: tuple[str, ...]
    folder: Path

    def told(self, options: tuple[str, ...]) -> str:
        """Start an executor with these options and return what it says before it ends, which it does without a scheduler."""
        java = shutil.which("java")
        assert java is not None
        variables = {
            **ENVIRONMENT,
            "SPARK_EXECUTOR_MEMORY": "256m",
            "SPARK_EXECUTOR_POD_IP": HERE,
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{HERE}:{self.port}",
            **{f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options)},
        }
        command = executor_command([java, *QUICK], spark_classpath(Path(pyspark.__file__).parent), variables)
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=240,
            cwd=self.folder,
        )
        assert done.returncode != 0
        return done.stdout + done.stderr

    def changed(self, changes: Mapping[str, str]) -> tuple[str, ...]:
        """Return the options with other values of some settings."""
        names = {option: option.removeprefix("-D").split("=")[0] for option in self.options}
        return tuple(f"-D{name}={changes[name]}" if name in changes else option for option, name in names.items())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("network")
    secret = folder / "secret"
    secret.write_text(secrets.token_hex(32))
    settings = session_settings(in_a_pod(folder), JARS, POD)
    assert settings["spark.authenticate.secret.file"] == NETWORK_FILE
    settings |= {"spark.authenticate.secret.file": str(secret)}
    quick = SparkConf(loadDefaults=False).set("spark.driver.extraJavaOptions", " ".join(QUICK))
    launch: Any = launch_gateway
    gateway = launch(quick)
    try:
        yield Server(*_serve(gateway.jvm, settings), folder)
    finally:
        gateway.shutdown()
        process: Any = gateway.proc
        process.stdin.close()  # the JVM ends with its standard input
        process.wait(60)


def _serve(jvm: Any, settings: Mapping[str, str]) -> tuple[int, tuple[str, ...]]:
    conf = jvm.org.apache.spark.SparkConf(False)
    for key, value in settings.items():
        if key.startswith(("spark.authenticate", "spark.network.", "spark.master")):
            conf.set(key, value)
    entries = getattr(jvm.org.apache.spark.internal.config, "package$").__getattr__("MODULE$")
    nothing = getattr(jvm.scala, "None$").__getattr__("MODULE$")
    manager = jvm.org.apache.spark.SecurityManager(conf, nothing, entries.AUTH_SECRET_FILE_DRIVER())
    manager.initializeAuth()
    made = jvm.org.apache.spark.rpc.RpcEnv.create("driver", HERE, HERE, 0, conf, manager, 1, False)
    names = [entry._1() for entry in conf.getAll()]
    told = [name for name in names if jvm.org.apache.spark.SparkConf.isExecutorStartupConf(name)]
    return made.address().port(), tuple(f"-D{name}={conf.get(name)}" for name in told)


@pytest.fixture(scope="module")
def said(server: Server) -> dict[str, str]:
    """What each executor says, by who it is; all of them start at once."""
    another = server.folder / "another-secret"
    another.write_text(secrets.token_hex(32))
    changes = {
        "with its attempt's secret": {},
        "with the secret of another attempt": {"spark.authenticate.secret.file": str(another)},
        "that does not authenticate itself": {"spark.authenticate": "false"},
        "that does not encrypt": {"spark.network.crypto.enabled": "false"},
    }
    with ThreadPoolExecutor() as pool:
        told = pool.map(lambda changed: server.told(server.changed(changed)), changes.values())
        return dict(zip(changes, told, strict=True))


def test_an_executor_with_its_attempts_secret_is_let_in(said: Mapping[str, str]) -> None:
    assert LET_IN in said["with its attempt's secret"], said["with its attempt's secret"][-3000:]


@pytest.mark.parametrize(
    "who", ["with the secret of another attempt", "that does not authenticate itself", "that does not encrypt"]
)
def test_an_executor_is_refused(said: Mapping[str, str], who: str) -> None:
    """Without encryption Spark would fall back to its older handshake (SASL), which was let in before that was switched off."""
    assert LET_IN not in said[who]
    assert "Exception" in said[who], said[who][-3000:]
