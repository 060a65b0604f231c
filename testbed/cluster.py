"""A real Kubernetes on this machine, without Docker: etcd, the API server and the rest from source, containerd from Debian.

Every process runs in a sandbox (namespaces of its own), so several clusters may run at once and nothing stays behind.
Inside is no way out to the internet and no DNS server; NetworkPolicy is not enforced. Pod Security admission, RBAC, Node
authorization and CEL validation are the real ones. Needs root and what `cluster_tools.missing` looks for.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from testbed import cache, cluster_files, processes
from testbed.containerd import Containerd
from testbed.image_layout import ImageLayout
from testbed.programs import ensure_programs
from testbed.sandbox import INSIDE, Inside, Sandbox

_START_SECONDS = 180.0
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"  # without it no pod is admitted


class KubectlFailed(RuntimeError):
    """kubectl ended with an error; the message is its own."""


@dataclass
class Cluster:
    """A cluster with its state below `folder`; a context manager that leaves nothing but its logs there.

    Nodes are called node1, node2, …; they share a network and a kernel. Without nodes every pod stays pending. Pods reach
    servers on the host at `host_address`, the host reaches pods and services at their addresses. Nodes have the images of
    `store` (image_store.ensure_store).
    """

    folder: Path
    nodes: int = 2
    store: Path | None = None
    _programs: Path = field(default_factory=ensure_programs)
    _sandbox: Sandbox | None = None
    _servers: dict[str, Inside] = field(default_factory=dict)
    _containerds: dict[str, Containerd] = field(default_factory=dict)
    _undo: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as undo:
            undo.callback(self._remove_state)
            undo.enter_context(cache.in_use(self._programs, *filter(None, [self.store])))
            self._sandbox = undo.enter_context(Sandbox(self.folder, self._programs / "pause"))
            self._write_files()
            self._start()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator."""
        return self._kubeconfig("admin")

    @property
    def kubectl_program(self) -> Path:
        """The kubectl of this cluster's release."""
        return self._programs / "kubectl"

    @property
    def helm_program(self) -> Path:
        """A helm that fits this cluster."""
        return self._programs / "helm"

    @property
    def host_address(self) -> str:
        """The host, as pods see it. Servers that they must reach listen here."""
        return self._running_sandbox.host_address

    @property
    def node_names(self) -> list[str]:
        """The names of the nodes."""
        return [f"node{number}" for number in range(1, self.nodes + 1)]

    @property
    def pids(self) -> dict[str, int]:
        """The process ids by name: etcd, apiserver, controller-manager, scheduler, proxy, kubelet-node1 and so on."""
        return {name: server.pid for name, server in self._servers.items()}

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 120) -> str:
        """Run kubectl as an administrator and return what it printed.

        Raises:
            KubectlFailed: with what it said.
        """
        command = [str(self.kubectl_program), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(
            command, check=False, input=stdin, capture_output=True, text=True, timeout=timeout_seconds, env=self._home()
        )
        if done.returncode:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def load(self, archive: Path) -> None:
        """Import an image archive (docker-archive or OCI) into every node."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda containerd: containerd.load(archive), self._containerds.values()))

    def load_layout(self, layout: ImageLayout) -> None:
        """Import the images of a layout into every node, reading only what the nodes lack."""
        present = set.intersection(*(containerd.digests() for containerd in self._containerds.values()))
        archive = self.folder / "layout.tar"
        layout.write_archive(archive, present)
        self.load(archive)
        archive.unlink()

    def freeze(self, node: str) -> None:
        """Stop the node's kubelet: the node is lost to the cluster while its containers run on."""
        self._servers[f"kubelet-{node}"].send(signal.SIGSTOP)

    def thaw(self, node: str) -> None:
        """Let a frozen kubelet continue."""
        self._servers[f"kubelet-{node}"].send(signal.SIGCONT)

    def kill_container(self, namespace: str, pod: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the first process of the pod's only container, past the kubelet and the API server."""
        containerd, container = self._container(namespace, pod)
        containerd.ctr("tasks", "kill", f"--signal={how.name}", container)

    def log_on_node(self, node: str, namespace: str, pod: str) -> str:
        """Return the log of a pod's containers from the disk of its node, without asking its kubelet."""
        found = sorted((self.folder / node / "logs").glob(f"{namespace}_{pod}_*/*/*.log"))
        return "".join(file.read_text(errors="replace") for file in found)

    def freeze_container(self, namespace: str, pod: str) -> None:
        """Stop every process of the pod's only container; its connections stay open."""
        containerd, container = self._container(namespace, pod)
        containerd.ctr("tasks", "pause", container)

    def thaw_container(self, namespace: str, pod: str) -> None:
        """Let a frozen container continue."""
        containerd, container = self._container(namespace, pod)
        containerd.ctr("tasks", "resume", container)

    def stop_api_server(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the API server; everything else keeps running without it. SIGTERM waits up to a minute for open watches."""
        self._servers.pop("apiserver").stop(how)

    def start_api_server(self) -> None:
        """Start the API server and wait until it is ready; what it knew it still knows."""
        sandbox = self._running_sandbox
        pki = self.folder / "pki"
        options = {
            "etcd-servers": "http://127.0.0.1:2379",
            "cert-dir": pki,
            "advertise-address": sandbox.address,
            "secure-port": 6443,
            "token-auth-file": pki / "tokens.csv",
            "authorization-mode": "Node,RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": pki / "service-accounts.key",
            "service-account-signing-key-file": pki / "service-accounts.key",
            "service-cluster-ip-range": sandbox.services,
            "kubelet-preferred-address-types": "InternalIP",
            # Off by default, on where clusters are strict: who names an owner must be allowed to delete what it makes.
            "enable-admission-plugins": "OwnerReferencesPermissionEnforcement",
            "allow-privileged": "true",
        }
        self._serve("apiserver", "kube-apiserver", options)
        self._await("apiserver", lambda: self._get("/readyz") == "ok")

    def restart_api_server(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the API server and start it again."""
        self.stop_api_server(how)
        self.start_api_server()

    @property
    def _running_sandbox(self) -> Sandbox:
        assert self._sandbox is not None
        return self._sandbox

    @property
    def _server_address(self) -> str:
        return f"https://{self._running_sandbox.address}:6443"

    def _container(self, namespace: str, pod: str) -> tuple[Containerd, str]:
        shown = json.loads(self.kubectl("get", "pod", pod, f"--namespace={namespace}", "--output=json"))
        (status,) = shown["status"]["containerStatuses"]
        return self._containerds[shown["spec"]["nodeName"]], status["containerID"].removeprefix("containerd://")

    def _kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user}.kubeconfig"

    def _home(self) -> dict[str, str]:
        """An environment whose HOME is this cluster's folder: below it kubectl keeps what it has discovered."""
        return {**os.environ, "HOME": str(self.folder)}

    def _remove_state(self) -> None:
        for name in [*self.node_names, "etcd", "pki"]:
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def _write_files(self) -> None:
        pki = self.folder / "pki"
        for name in ("pki", *self.node_names):
            (self.folder / name).mkdir()
        (pki / "tokens.csv").write_text(cluster_files.tokens(self.node_names))
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        plain = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        (pki / "service-accounts.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
        for user in cluster_files.users(self.node_names):
            text = cluster_files.kubeconfig(user, self._server_address, pki / "apiserver.crt")
            self._kubeconfig(user).write_text(text)
        for node in self.node_names[:1]:
            proxy = cluster_files.proxy(self._kubeconfig("proxy"), self._running_sandbox.pods, node)
            (self.folder / "proxy.yaml").write_text(proxy)
        pause = (self._programs / "pause").read_bytes()
        archive = cluster_files.image_of_program(pause, "pause", cluster_files.PAUSE_IMAGE)
        (self.folder / "pause.tar").write_bytes(archive)

    def _start(self) -> None:
        local = {"listen-client-urls": "http://127.0.0.1:2379", "advertise-client-urls": "http://127.0.0.1:2379"}
        local["listen-peer-urls"] = "http://127.0.0.1:2380"
        self._serve("etcd", "etcd", {"data-dir": self.folder / "etcd", "unsafe-no-fsync": "true", **local})
        for node in self.node_names:
            self._start_containerd(node)
        self.start_api_server()
        if self.node_names:
            self.load(self.folder / "pause.tar")
        self._start_controllers()
        for number, node in enumerate(self.node_names, start=1):
            self._start_kubelet(number, node)
        if self.node_names:
            self._serve("proxy", "kube-proxy", {"config": self.folder / "proxy.yaml"})
        for node in self.node_names:
            self._await(f"kubelet-{node}", partial(self._node_is_ready, node))
        self._await("controller-manager", lambda: self._get(_DEFAULT_ACCOUNT) is not None)

    def _start_controllers(self) -> None:
        pki = self.folder / "pki"
        manager = {
            "kubeconfig": self._kubeconfig("controller-manager"),
            "service-account-private-key-file": pki / "service-accounts.key",
            "root-ca-file": pki / "apiserver.crt",
            "use-service-account-credentials": "true",
            "leader-elect": "false",
            "node-monitor-grace-period": "30s",
        }
        self._serve("controller-manager", "kube-controller-manager", manager)
        self._serve(
            "scheduler", "kube-scheduler", {"kubeconfig": self._kubeconfig("scheduler"), "leader-elect": "false"}
        )

    def _start_containerd(self, node: str) -> None:
        containerd = Containerd(self._running_sandbox, node, self.folder / node, self._running_sandbox.pods)
        if self.store is not None:
            containerd.share(self.store)
        self._containerds[node] = containerd
        self._servers[containerd.name] = containerd.start()

    def _start_kubelet(self, number: int, node: str) -> None:
        home = self.folder / node
        cgroup = self._running_sandbox.make_cgroup(node)
        socket = self._containerds[node].socket
        configuration = cluster_files.kubelet(number, socket, home, cgroup, nobody=self.host_address)
        (home / "kubelet.yaml").write_text(configuration)
        options = {
            "config": home / "kubelet.yaml",
            "kubeconfig": self._kubeconfig(node),
            "hostname-override": node,
            "node-ip": self._running_sandbox.address,
            "root-dir": INSIDE / node / "kubelet",
            "cert-dir": home / "pki",
        }
        self._serve(f"kubelet-{node}", "kubelet", options)

    def _serve(self, name: str, program: str, options: dict[str, Any]) -> None:
        words = [f"--{option}={value}" for option, value in options.items()]
        self._servers[name] = self._running_sandbox.start(name, [str(self._programs / program), *words])

    def _await(self, name: str, is_ready: Callable[[], bool]) -> None:
        log = self._running_sandbox.log_of(name)
        processes.wait_until_ready(self._servers[name].outer, is_ready, name, log, _START_SECONDS)

    def _node_is_ready(self, node: str) -> bool:
        found = self._get(f"/api/v1/nodes/{node}")
        conditions = json.loads(found)["status"]["conditions"] if found else []
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def _get(self, path: str) -> str | None:
        """What the API server answers, or None when it is not there or finds nothing."""
        authority = self.folder / "pki" / "apiserver.crt"
        if not authority.exists():
            return None
        request = urllib.request.Request(self._server_address + path, headers={"Authorization": "Bearer admin-token"})
        try:
            with urllib.request.urlopen(
                request, timeout=5, context=ssl.create_default_context(cafile=authority)
            ) as answer:
                return str(answer.read(), "utf-8")
        except (OSError, ssl.SSLError):
            return None
