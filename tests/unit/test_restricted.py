"""The Pod Security level `restricted`, field by field. What the API server itself says is in tests/cluster."""

from __future__ import annotations

from typing import Any

import pytest

from exactlyonce.launch.restricted import OWN_SECURITY, POD_SECURITY, secured, violations

POD: dict[str, Any] = {
    "securityContext": POD_SECURITY,
    "containers": [{"name": "main", "securityContext": OWN_SECURITY}],
    "volumes": [{"name": "tmp", "emptyDir": {}}],
}


def pod_with(**fields: Any) -> dict[str, Any]:
    return {**POD, **fields}


def main_with(**fields: Any) -> dict[str, Any]:
    (main,) = POD["containers"]
    return pod_with(containers=[{**main, **fields}])


def security_with(**fields: Any) -> dict[str, Any]:
    return main_with(securityContext={**OWN_SECURITY, **fields})


VIOLATING: dict[str, tuple[dict[str, Any], str]] = {
    "host network": (pod_with(hostNetwork=True), "hostNetwork"),
    "host processes": (pod_with(hostPID=True), "hostPID"),
    "host memory": (pod_with(hostIPC=True), "hostIPC"),
    "a host path": (pod_with(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "volumes[v].hostPath"),
    "network storage": (pod_with(volumes=[{"name": "v", "nfs": {}}]), "volumes[v].nfs"),
    "root for the pod": (pod_with(securityContext={**POD_SECURITY, "runAsUser": 0}), "securityContext.runAsUser"),
    "perhaps root": (pod_with(securityContext={"seccompProfile": POD_SECURITY["seccompProfile"]}), "runAsNonRoot"),
    "no seccomp": (pod_with(securityContext={"runAsNonRoot": True}), "seccompProfile"),
    "unconfined": (security_with(seccompProfile={"type": "Unconfined"}), "containers[main].securityContext.seccomp"),
    "an unsafe sysctl": (
        pod_with(securityContext={**POD_SECURITY, "sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
        "sysctls[kernel.msgmax]",
    ),
    "no AppArmor": (security_with(appArmorProfile={"type": "Unconfined"}), "appArmorProfile"),
    "an SELinux user": (security_with(seLinuxOptions={"user": "sysadm_u"}), "seLinuxOptions"),
    "an SELinux type": (security_with(seLinuxOptions={"type": "spc_t"}), "seLinuxOptions"),
    "a host process": (security_with(windowsOptions={"hostProcess": True}), "hostProcess"),
    "privileged": (security_with(privileged=True), "privileged"),
    "escalation": (security_with(allowPrivilegeEscalation=True), "allowPrivilegeEscalation"),
    "an open /proc": (security_with(procMount="Unmasked"), "procMount"),
    "kept capabilities": (security_with(capabilities={"drop": ["NET_RAW"]}), "capabilities.drop"),
    "an added capability": (security_with(capabilities={"drop": ["ALL"], "add": ["SYS_PTRACE"]}), "capabilities.add"),
    "a host port": (main_with(ports=[{"containerPort": 80, "hostPort": 80}]), "ports[80].hostPort"),
    "a probe elsewhere": (main_with(livenessProbe={"httpGet": {"host": "10.0.0.1", "port": 80}}), "livenessProbe"),
    "a hook elsewhere": (
        main_with(lifecycle={"preStop": {"tcpSocket": {"host": "a", "port": 1}}}),
        "lifecycle.preStop",
    ),
    "an init container": (pod_with(initContainers=[{"name": "i"}]), "initContainers[i].securityContext"),
}


@pytest.mark.parametrize("name", VIOLATING)
def test_a_violation_is_named_by_its_field(name: str) -> None:
    spec, field = VIOLATING[name]
    found = list(violations(spec))
    assert found
    assert all(field in sentence or name == "an init container" for sentence in found), found


ALLOWED: dict[str, dict[str, Any]] = {
    "our own": POD,
    "a user": security_with(runAsUser=1000, runAsGroup=1000),
    "groups": pod_with(securityContext={**POD_SECURITY, "fsGroup": 1000, "supplementalGroups": [4]}),
    "binding a low port": security_with(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
    "a safe sysctl": pod_with(
        securityContext={**POD_SECURITY, "sysctls": [{"name": "net.ipv4.tcp_keepalive_time", "value": "60"}]}
    ),
    "every kind of volume": pod_with(
        volumes=[
            {"name": kind, kind: {}}
            for kind in (
                "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
            )
        ]
    ),
    "a probe of itself": main_with(livenessProbe={"httpGet": {"port": 80}}, ports=[{"containerPort": 80}]),
    "security in the container alone": {
        "containers": [{"name": "main", "securityContext": {**OWN_SECURITY, **POD_SECURITY}}]
    },
    "a writable root": security_with(readOnlyRootFilesystem=False),
    "an init container that is secured": pod_with(initContainers=[secured({"name": "i"})]),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_the_level_allows_is_allowed(name: str) -> None:
    assert list(violations(ALLOWED[name])) == []
