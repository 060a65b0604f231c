"""containerd inside a sandbox: it keeps the images of one node and runs its containers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from testbed import cluster_files, processes
from testbed.sandbox import CommandFailed, Inside, Sandbox

_START_SECONDS = 60.0
_LOAD_SECONDS = 900.0
_ROOT = "containerd"
_RUN = Path("/run")  # inside: its own, in memory, and short enough for the names of sockets
_PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))

# Below a containerd's root folder.
BLOBS = Path("io.containerd.content.v1.content/blobs/sha256")
SNAPSHOTS = Path("io.containerd.snapshotter.v1.overlayfs/snapshots")
DATABASES = (
    Path("io.containerd.metadata.v1.bolt/meta.db"),
    Path("io.containerd.snapshotter.v1.overlayfs/metadata.db"),
)


def network_plugins() -> Path:
    """Return the folder with the CNI plugins."""
    present = [folder for folder in _PLUGIN_FOLDERS if (folder / "bridge").exists()]
    return (present or _PLUGIN_FOLDERS)[0]


@dataclass
class Containerd:
    """The containerd of one node; its images are below `home`, and its pods get addresses from `pods`."""

    sandbox: Sandbox
    node: str
    home: Path
    pods: str

    @property
    def socket(self) -> Path:
        """The socket for kubelet and ctr; inside."""
        return _RUN / f"containerd-{self.node}.sock"

    @property
    def root(self) -> Path:
        """What it keeps: images and the files of containers."""
        return self.home / _ROOT

    @property
    def name(self) -> str:
        """The name of its log."""
        return f"containerd-{self.node}"

    def start(self) -> Inside:
        """Start it and wait until it answers."""
        network = self.home / "network"
        network.mkdir(parents=True)
        addresses = _RUN / "pod-addresses"  # one book for all nodes: they share the bridge
        (network / "10-testbed.conflist").write_text(cluster_files.pod_network(self.pods, addresses))
        file = self.home / "containerd.toml"
        state = self.socket.with_suffix("")
        file.write_text(cluster_files.containerd(self.root, state, network, network_plugins()))
        process = self.sandbox.start(self.name, ["containerd", "--config", str(file)])
        log = self.sandbox.log_of(self.name)
        processes.wait_until_ready(process.outer, self._answers, "containerd", log, _START_SECONDS)
        return process

    def ctr(self, *arguments: str, timeout_seconds: float = 60) -> str:
        """Run ctr in the namespace of Kubernetes' images and return what it printed."""
        command = ["ctr", f"--address={self.socket}", "--namespace=k8s.io", *arguments]
        return self.sandbox.run(*command, timeout_seconds=timeout_seconds)

    def load(self, archive: Path) -> None:
        """Import an image archive; blobs that it lacks must be here already."""
        self.ctr("images", "import", str(archive), timeout_seconds=_LOAD_SECONDS)

    def digests(self) -> set[str]:
        """The SHA-256 of the blobs that are here."""
        folder = self.root / BLOBS
        return {file.name for file in folder.iterdir()} if folder.exists() else set()

    def share(self, home: Path) -> None:
        """Begin with the images of another home, which nobody writes any more: linked, not copied.

        Layers are read by every container and written by none, so all nodes may read the same files.
        """
        root = home / _ROOT
        for database in DATABASES:
            (self.root / database).parent.mkdir(parents=True)
            shutil.copy(root / database, self.root / database)
        for folder in (BLOBS, SNAPSHOTS):
            (self.root / folder).mkdir(parents=True)
            for item in (root / folder).iterdir():
                (self.root / folder / item.name).symlink_to(item)

    def _answers(self) -> bool:
        try:
            self.ctr("version")
        except CommandFailed:
            return False
        return True
