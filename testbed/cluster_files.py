"""The files that the servers of a test cluster read, as text. Performs no I/O.

Test use only: the tokens are fixed and known.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

PAUSE_IMAGE = "localhost/pause:1"

_USERS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
}


def users(nodes: Sequence[str]) -> list[str]:
    """Return whom the API server knows by a token, and who therefore needs a kubeconfig."""
    return [*_USERS, *nodes]


def tokens(nodes: Sequence[str]) -> str:
    """Return the API server's token file: token, user, id, group a line."""
    known = {**_USERS, **{node: (f"system:node:{node}", "system:nodes") for node in nodes}}
    return "".join(f'{name}-token,{user},{name},"{group}"\n' for name, (user, group) in known.items())


def kubeconfig(user: str, server: str, authority: Path) -> str:
    """Return a kubeconfig for one of `users`; it is JSON, which YAML readers take."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": user, "user": {"token": f"{user}-token"}}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
        "current-context": "testbed",
    }
    return json.dumps(config, indent=1)


def pod_network(subnet: str, addresses: Path) -> str:
    """Return the CNI configuration: one bridge for the pods of all nodes, without address translation."""
    ranges = {"type": "host-local", "dataDir": str(addresses), "ranges": [[{"subnet": subnet}]]}
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True}
    bridge["ipam"] = {**ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    return json.dumps({"cniVersion": "0.4.0", "name": "testbed", "plugins": [bridge]})


def containerd(images: Path, state: Path, network: Path, plugins: Path) -> str:
    """Return a node's containerd.toml: what it keeps is in `images`, what it needs while it runs in `state`."""
    return f"""\
version = 2
root = "{images}"
state = "{state}"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{state}.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true   # some machines refuse lower scores; without it no sandbox starts there
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{network}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def kubelet(number: int, socket: Path, home: Path, cgroup: str, nobody: str) -> str:
    """Return the configuration of the kubelet of node `number`, counted from 1.

    `nobody` is an address where no DNS server listens, so that a pod that asks for a name is told at once that it gets none.
    """
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "port": 10249 + number,
        "healthzPort": 10348 + number,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "containerRuntimeEndpoint": f"unix://{socket}",
        "podLogsDir": str(home / "logs"),
        "volumePluginDir": str(home / "plugins"),
        "resolvConf": "",
        "clusterDNS": [nobody],
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        # Images come from archives, not from a registry: one that is thrown away is gone.
        "imageGCHighThresholdPercent": 100,
        # With the controller manager's grace period: a node that is lost is seen to be lost within 30 s.
        "nodeLeaseDurationSeconds": 20,
    }
    return json.dumps(config, indent=1)


def proxy(kubeconfig_file: Path, pods: str, node: str) -> str:
    """Return the configuration of kube-proxy, one for all nodes: they share a network."""
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig_file)},
        "clusterCIDR": pods,
        "hostnameOverride": node,
        "conntrack": {"maxPerCore": 0},
        # Two pods on one bridge: an answer that did not come back through here would not be recognised.
        "nftables": {"masqueradeAll": True},
    }
    return json.dumps(config, indent=1)


def image_of_program(program: bytes, name: str, tag: str) -> bytes:
    """Return an image archive (docker-archive) that holds one static program and runs it."""
    layer = _tar({name: program})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{name}"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
    files = {"config.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    return _tar({**files, "layer.tar": layer})


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
