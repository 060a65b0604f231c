"""Pod Security level `restricted`: what the operator's pods have, and what a template would break. Performs no I/O.

Source: kubernetes.io/docs/concepts/security/pod-security-standards, whose rules stand beside the checks. The API server
may check them again (Pod Security admission); here they are told by field, before anything is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

POD_SECURITY: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
OWN_SECURITY: dict[str, Any] = {**CONTAINER_SECURITY, "readOnlyRootFilesystem": True}
"""Of Spark's own containers, which write to volumes only; the level does not ask for it."""

_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")


def secured(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container with what it leaves open about its security filled in; what it says itself is kept."""
    said = container.get("securityContext") or {}
    capabilities = {**CONTAINER_SECURITY["capabilities"], **(said.get("capabilities") or {})}
    return {**container, "securityContext": {**CONTAINER_SECURITY, **said, "capabilities": capabilities}}


def violations(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each field of a pod's spec that `restricted` does not allow."""
    yield from _pod(spec)
    pod_context = spec.get("securityContext") or {}
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or ():
            where = f"{kind}[{container.get('name', '?')}]"
            for check in _CONTAINER_CHECKS:
                yield from check(where, container, pod_context)


def _pod(spec: Mapping[str, Any]) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield f"{name}: a pod shares no namespace with its node; remove it"
    for volume in spec.get("volumes") or ():
        for kind in sorted(set(volume) - {"name"} - _VOLUMES):
            allowed = ", ".join(sorted(_VOLUMES))
            yield f"volumes[{volume.get('name', '?')}].{kind}: this kind of volume is not allowed; use one of {allowed}"
    context = spec.get("securityContext") or {}
    yield from _context("securityContext", context)
    for sysctl in context.get("sysctls") or ():
        if sysctl.get("name") not in _SYSCTLS:
            yield f"securityContext.sysctls[{sysctl.get('name')}]: this setting reaches beyond the pod; remove it"


def _context(where: str, context: Mapping[str, Any]) -> Iterator[str]:
    """What a pod's and a container's security context have in common."""
    if context.get("runAsNonRoot") is False:
        yield f"{where}.runAsNonRoot: no container runs as root; set true or nothing"
    if context.get("runAsUser") == 0:
        yield f"{where}.runAsUser: no container runs as root; give another user"
    if (context.get("seccompProfile") or {}).get("type", "RuntimeDefault") not in ("RuntimeDefault", "Localhost"):
        yield f"{where}.seccompProfile: give type RuntimeDefault or Localhost"
    if (context.get("appArmorProfile") or {}).get("type", "RuntimeDefault") not in ("RuntimeDefault", "Localhost"):
        yield f"{where}.appArmorProfile: give type RuntimeDefault or Localhost"
    selinux = context.get("seLinuxOptions") or {}
    if selinux.get("type", "") not in _SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield f"{where}.seLinuxOptions: user, role and this type are not allowed; remove them"
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield f"{where}.windowsOptions.hostProcess: no container runs as a process of its node; remove it"


def _own_context(where: str, container: Mapping[str, Any], _pod_context: Mapping[str, Any]) -> Iterator[str]:
    yield from _context(f"{where}.securityContext", container.get("securityContext") or {})


def _privilege(where: str, container: Mapping[str, Any], _pod_context: Mapping[str, Any]) -> Iterator[str]:
    context = container.get("securityContext") or {}
    if context.get("privileged"):
        yield f"{where}.securityContext.privileged: no container is privileged; remove it"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{where}.securityContext.allowPrivilegeEscalation: set false or nothing"
    if context.get("procMount", "Default") != "Default":
        yield f"{where}.securityContext.procMount: set Default or nothing"


def _capabilities(where: str, container: Mapping[str, Any], _pod_context: Mapping[str, Any]) -> Iterator[str]:
    capabilities = (container.get("securityContext") or {}).get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or ()):
        yield f"{where}.securityContext.capabilities.drop: every capability is dropped; it must hold ALL"
    if any(added != "NET_BIND_SERVICE" for added in capabilities.get("add") or ()):
        yield f"{where}.securityContext.capabilities.add: only NET_BIND_SERVICE may be added"


def _not_root(where: str, container: Mapping[str, Any], pod_context: Mapping[str, Any]) -> Iterator[str]:
    context = container.get("securityContext") or {}
    if context.get("runAsNonRoot", pod_context.get("runAsNonRoot")) is None:
        yield f"{where}.securityContext.runAsNonRoot: it must be true here or for the pod"
    if context.get("seccompProfile", pod_context.get("seccompProfile")) is None:
        yield f"{where}.securityContext.seccompProfile: it must be given here or for the pod"


def _host(where: str, container: Mapping[str, Any], _pod_context: Mapping[str, Any]) -> Iterator[str]:
    for port in container.get("ports") or ():
        if port.get("hostPort"):
            yield f"{where}.ports[{port.get('containerPort')}].hostPort: no port of the node is taken; remove it"
    hooks = container.get("lifecycle") or {}
    handlers = {name: container.get(name) for name in _PROBES} | {
        f"lifecycle.{name}": hooks.get(name) for name in _HOOKS
    }
    for name, handler in handlers.items():
        if any(((handler or {}).get(kind) or {}).get("host") for kind in ("httpGet", "tcpSocket")):
            yield f"{where}.{name}: it asks the pod itself; remove host"


_CONTAINER_CHECKS: tuple[Callable[[str, Mapping[str, Any], Mapping[str, Any]], Iterator[str]], ...] = (
    _own_context,
    _privilege,
    _capabilities,
    _not_root,
    _host,
)
