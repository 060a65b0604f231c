"""The part of a stream's spec that is about its pods. Local mode, where drivers are processes, reads cores and memory only."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from exactlyonce.schema.constraints import Rule, matches
from exactlyonce.schema.model import Duration, Flag, Model, ObjectName, Texts, Whole, within, without_nulls

OWN_PREFIX = "exactlyonce.dev/"
"""What the names of this operator's labels and annotations begin with."""

DRIVER_CONTAINER = "driver"
EXECUTOR_CONTAINER = "executor"
"""The names of the containers, in a pod template, that Spark runs in."""

Memory = Annotated[
    str,
    Field(max_length=9),
    matches("[1-9][0-9]{0,6}[MG]i", "write a quantity in Mi or Gi, as 512Mi or 2Gi"),
]

Cpu = Annotated[
    str,
    Field(max_length=12),
    matches(r"[1-9][0-9]{0,6}m|[1-9][0-9]{0,3}(\.[0-9]{1,3})?|0\.[0-9]{0,2}[1-9]", "write it as 2, 0.5 or 500m"),
]

_NOT_OWN = Rule(
    f"!self.exists(key, key.startsWith('{OWN_PREFIX}'))",
    lambda names: not any(name.startswith(OWN_PREFIX) for name in names),
    f"names that begin with {OWN_PREFIX} are the operator's own; use another prefix",
)

LabelValue = Annotated[
    str,
    Field(max_length=63),
    matches(
        "([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?",
        "write a label's value: letters, digits, hyphens, underscores and dots",
    ),
]

Labels = Annotated[dict[str, LabelValue], Field(max_length=100), BeforeValidator(without_nulls), _NOT_OWN]
Annotations = Annotated[Texts, _NOT_OWN]


class ImagePullPolicy(StrEnum):
    """When a node pulls the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class ImagePullSecret(Model):
    """A secret with a registry's login, in the stream's own namespace."""

    name: ObjectName = Field(description="The secret's name.")


class PodTemplateMetadata(Model):
    """Labels and annotations of pods."""

    labels: Labels = Field({}, description="Labels in addition to the operator's own.")
    annotations: Annotations = Field({}, description="Annotations in addition to the operator's own.")


class PodTemplate(Model):
    """What is added to a pod."""

    metadata: PodTemplateMetadata = Field(PodTemplateMetadata(), description="Labels and annotations.")
    spec: dict[str, Any] = Field(
        {},
        description="Any part of a pod's spec, merged into what the operator makes as a strategic merge patch is: lists "
        "of containers, volumes, mounts, ports and environment variables are joined by their names, other lists "
        f"and values replace. Spark's container is {DRIVER_CONTAINER} in a driver's and {EXECUTOR_CONTAINER} in an "
        "executor's pod. The command, the arguments, the image, restartPolicy and everything else that the "
        "guarantee depends on are set by the operator; docs/reference.md has the list.",
    )


class Driver(Model):
    """The Spark driver."""

    cores: Whole = Field(2, ge=1, le=256, description="The number of cores that the driver uses.")
    memory: Memory = Field("1Gi", description="The heap size of the JVM, such as 2Gi.")
    memory_overhead: Memory | None = Field(
        None,
        description="Memory of the pod in addition to the heap, for Python and the system; the default is 40 % of memory, "
        "at least 384Mi.",
    )
    cpu_request: Cpu | None = Field(None, description="The CPU request of the pod, such as 500m; the default is cores.")
    cpu_limit: Cpu | None = Field(None, description="The CPU limit of the pod; by default, no limit.")
    service_account_name: ObjectName | None = Field(
        None, description="The service account of its pod; the default is the one that the chart made for drivers."
    )
    start_timeout: Annotated[Duration, within("10s", "24h")] = Field(
        timedelta(minutes=10),
        description="How long the pod may take to start running; after that it is deleted and the next attempt is made.",
    )
    progress_timeout: Annotated[Duration, within("1m", "24h")] = Field(
        timedelta(minutes=30),
        description="How long it may show no progress before it is replaced: no batch begins or lands, no task ends and no "
        "row is handled, although a batch is running or being planned. It is never less than the transactionTimeout of the "
        "sink and a minute.",
    )
    pod_template: PodTemplate = Field(PodTemplate(), description="A template that is merged into the pod.")


class Executor(Model):
    """The Spark executors."""

    instances: Whole = Field(2, ge=1, le=10_000, description="The number of executors.")
    max_instances: Whole | None = Field(
        None,
        ge=1,
        le=10_000,
        description="With it, Spark starts more executors while tasks wait, up to this many, and ends idle ones, down to "
        "instances.",
    )
    cores: Whole = Field(1, ge=1, le=256, description="The number of tasks that each executor runs at once.")
    memory: Memory = Field("1Gi", description="The heap size of each JVM, such as 2Gi.")
    memory_overhead: Memory | None = Field(
        None,
        description="Memory of each pod in addition to the heap, for Python and the system; the default is 40 % of memory, "
        "at least 384Mi.",
    )
    cpu_request: Cpu | None = Field(
        None, description="The CPU request of each pod, such as 500m; the default is cores."
    )
    cpu_limit: Cpu | None = Field(None, description="The CPU limit of each pod; by default, no limit.")
    pod_template: PodTemplate = Field(PodTemplate(), description="A template that is merged into each pod.")

    rules = (
        Rule(
            "!has(self.maxInstances) || self.maxInstances >= self.instances",
            lambda it: it.max_instances is None or it.max_instances >= it.instances,
            "maxInstances may not be less than instances",
        ),
    )


class SparkUi(Model):
    """Spark's user interface."""

    enabled: Flag = Field(
        False,
        description="Whether the driver serves it; the operator then creates a Service named <stream>-ui, port 4040.",
    )
