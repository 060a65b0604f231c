"""Spark's settings for a driver in a pod: client mode, executors by Spark's own Kubernetes scheduler. Performs no I/O.

The driver needs no Service and no DNS: it tells its executors its own address. Spark adds an owner reference to each
executor's pod, so they go with the driver's. What asks for more rights than to make and watch pods is off. Sources: Spark
4.2's Config.scala and BasicExecutorFeatureStep of resource-managers/kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.errors import Refused
from exactlyonce.launch.driver_document import BLOCK_PORT, POD_IP, RPC_PORT, UI_PORT, KubernetesPlace
from exactlyonce.launch.pod_names import EXECUTOR

_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"

_LEAST_RIGHTS = {
    # Executors get all they need from the template; a ConfigMap and volumes of their own would ask for rights to make them.
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
}

DEFAULTS = {
    # A stream lives for months: executors that failed last week say nothing of today.
    "spark.executor.failuresValidityInterval": "1h",
}
"""Settings that a resource may change."""

_SERVLET = {
    "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
    "spark.metrics.conf.driver.source.jvm.class": "org.apache.spark.metrics.source.JvmSource",
    # Part of each name; by default it is the application's id, another one in each attempt.
    "spark.metrics.namespace": "exactlyonce",
}


_ENCRYPTED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # The handshake whose keys are derived from the whole of it, and a cipher that notices what was changed on the way.
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    # Otherwise whoever begins with Spark's older handshake (SASL) is let in, and nothing it exchanges is encrypted.
    "spark.network.crypto.saslFallback": "false",
}
"""How driver and executors talk. The cost is measured by bench/network.py; docs/adr/0023."""


class NotInAPod(Refused):
    """The process is not where the document says that it is."""


def kubernetes_settings(place: KubernetesPlace, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a driver at `place`, whose process has `environment`.

    Raises:
        NotInAPod: if a variable that a driver's pod has is missing.
    """
    missing = [name for name in (_HOST, _PORT, POD_IP) if not environment.get(name)]
    if missing:
        raise NotInAPod(
            f"{', '.join(missing)} is not set: this document is for a driver in a pod that the operator made."
        )
    address = _in_url(environment[POD_IP])
    return {
        "spark.master": f"k8s://https://{_in_url(environment[_HOST])}:{environment[_PORT]}",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.driver.port": str(RPC_PORT),
        "spark.driver.blockManager.port": str(BLOCK_PORT),
        "spark.blockManager.port": str(BLOCK_PORT),
        "spark.kubernetes.namespace": place.namespace,
        "spark.kubernetes.driver.pod.name": place.pod_name,
        **_LEAST_RIGHTS,
        **_executors(place),
        **_ui(place),
        **_network(place),
    }


def _executors(place: KubernetesPlace) -> dict[str, str]:
    size, image = place.executor, place.image
    settings = {
        "spark.executor.instances": str(place.executors),
        "spark.executor.cores": str(size.cores),
        "spark.executor.memory": f"{size.heap_mib}m",
        "spark.executor.memoryOverhead": f"{size.overhead_mib}m",
        "spark.kubernetes.container.image": image.name,
        "spark.kubernetes.executor.podNamePrefix": place.executor_prefix,
        "spark.kubernetes.executor.podTemplateFile": place.executor_template,
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR,
    }
    if size.cpu_request is not None:
        settings["spark.kubernetes.executor.request.cores"] = size.cpu_request
    if size.cpu_limit is not None:
        settings["spark.kubernetes.executor.limit.cores"] = size.cpu_limit
    if image.pull_policy is not None:
        settings["spark.kubernetes.container.image.pullPolicy"] = image.pull_policy
    if image.pull_secrets:
        settings["spark.kubernetes.container.image.pullSecrets"] = ",".join(image.pull_secrets)
    if place.most_executors is not None:
        settings |= {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": str(place.executors),
            "spark.dynamicAllocation.maxExecutors": str(place.most_executors),
        }
    return settings


def _network(place: KubernetesPlace) -> dict[str, str]:
    """With a file for the secret, Spark puts it into no variable of an executor's pod."""
    return {**_ENCRYPTED, "spark.authenticate.secret.file": place.network_secret_file}


def _ui(place: KubernetesPlace) -> dict[str, str]:
    """The user interface serves Spark's own metrics too: of the driver and, from its heartbeats, of the executors."""
    if not place.ui:
        return {"spark.ui.enabled": "false"}
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(UI_PORT),
        "spark.ui.prometheus.enabled": "true",
        **_SERVLET,
    }


def _in_url(address: str) -> str:
    """An IPv6 address stands in brackets, also where Spark takes a host alone."""
    return f"[{address}]" if ":" in address else address
