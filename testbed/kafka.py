"""A real Kafka broker on loopback: one KRaft node from the jars of `kafka-broker.lock`."""

from __future__ import annotations

import signal
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from exactlyonce_spark import jars
from testbed import processes

BROKER_LOCK = Path(__file__).with_name("kafka-broker.lock")
_JVM = ["-Xmx768m", "-Xms256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"]
_LOG4J = """\
Configuration:
  Appenders: {Console: {name: out, PatternLayout: {pattern: "%d %p %c{1} %m%n"}}}
  Loggers: {Root: {level: WARN, AppenderRef: {ref: out}}}
"""


@dataclass
class Kafka:
    """One broker with its own log directory below `folder`; a context manager that leaves nothing running.

    Clients must reach `host`: pods reach `Cluster.host_address`, everything on this machine reaches both.
    `port` takes plain connections. When `users` has entries, `sasl_port` asks for SASL/PLAIN with one of them.
    """

    folder: Path
    host: str = field(default="127.0.0.1", kw_only=True)
    port: int = field(default_factory=processes.free_port)
    settings: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    sasl_port: int = field(default_factory=processes.free_port)
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._format()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)  # nobody reads its data again: closing the logs of hundreds of topics takes 15 s

    @property
    def bootstrap_servers(self) -> str:
        """What a client needs to find the broker."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The broker's process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the broker on its ports and wait until it answers metadata requests."""
        log = self.folder / "kafka.log"
        command = self._java("kafka.Kafka", str(self.folder / "server.properties"))
        self._process = processes.start(command, log, directory=self.folder)
        processes.wait_until_ready(self._process, self._answers, "Kafka", log, 90)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the broker; its logs stay for the next `start`."""
        if self._process is not None:
            processes.stop(self._process, how)
            self._process = None

    def admin(self) -> Any:
        """Return a confluent-kafka AdminClient for this broker; its answers come only while it is referenced."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def create_topic(self, name: str, partitions: int = 4, **config: str) -> None:
        """Create a topic and wait until it exists."""
        from confluent_kafka.admin import NewTopic

        admin = self.admin()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([topic])[name].result(30)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker has said so."""
        admin = self.admin()
        admin.delete_topics([name])[name].result(30)

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        from confluent_kafka.admin import NewPartitions

        admin = self.admin()
        admin.create_partitions([NewPartitions(name, total)])[name].result(30)

    def delete_records_before(self, name: str, partition: int, offset: int) -> None:
        """Do what retention does: make `offset` the earliest of the partition."""
        from confluent_kafka import TopicPartition

        admin = self.admin()
        asked = TopicPartition(name, partition, offset)
        next(iter(admin.delete_records([asked]).values())).result(30)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        if not processes.port_answers(self.port, self.host):
            return False
        try:
            return bool(self.admin().list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        classpath = f"{jars.ensure_jars(BROKER_LOCK)}/*"
        log_settings = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.yaml'}"
        return ["java", *_JVM, log_settings, "-cp", classpath, main_class, *arguments]

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.yaml").write_text(_LOG4J)
        (self.folder / "server.properties").write_text(self._properties())
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._java(
            # In one word: an id may begin with a hyphen.
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster_id}",
            f"--config={self.folder / 'server.properties'}",
        )
        formatted = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.folder)
        if formatted.returncode:
            raise processes.ServerDidNotStart(
                f"Kafka's storage was not formatted: {formatted.stdout}{formatted.stderr}"
            )

    def _properties(self) -> str:
        controller = processes.free_port()
        listeners = [f"PLAINTEXT://{self.host}:{self.port}"]
        if self.users:
            listeners.append(f"SASL_PLAINTEXT://{self.host}:{self.sasl_port}")
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{controller}"]),
            "advertised.listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "log.dirs": str(self.folder / "logs"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "message.max.bytes": "20971520",
            # Tests give records timestamps of the past: retention would take them within minutes of a slow run.
            "log.retention.ms": "-1",
        }
        if self.users:
            accounts = " ".join(f'user_{name}="{_escaped(password)}"' for name, password in self.users.items())
            values["sasl.enabled.mechanisms"] = "PLAIN"
            values["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {accounts};"
            )
        values.update(self.settings)
        return "".join(f"{key}={_backslashes_doubled(value)}\n" for key, value in values.items())


def _escaped(password: str) -> str:
    """A password between the double quotes of a JAAS line."""
    return _backslashes_doubled(password).replace('"', '\\"')


def _backslashes_doubled(text: str) -> str:
    """As JAAS wants them, and as a file of Java properties does."""
    return text.replace("\\", "\\\\")
