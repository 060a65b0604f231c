"""Namespaces of its own for a test cluster: nothing that starts inside outlives them, and the host is left as it was.

Process 1 of the sandbox is tied to this process's life; when it ends, the kernel ends every process inside, and with the
last one the mounts, the network devices and the packet filter rules are gone. All that is outside is one network device
and one cgroup, both with the sandbox's number in their name.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

from testbed import processes

INSIDE = Path("/run/folder")
"""The sandbox's folder as it is called inside: short enough for the names of sockets."""

_MOST_AT_ONCE = 60
_END_SECONDS = 30.0
_CGROUPS = Path("/sys/fs/cgroup")

# The share of all pods together is that of eight processes of the host, not of one: else a busy host starves the cluster.
_WEIGHTS = {"cpu.shares": "8192", "cpu.weight": "800"}

# A kubelet sets these for the whole machine; inside it finds them set, in files that only look like the machine's.
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}

# /run for sockets and locks, /var/lib and /var/log because kubelet and containerd have fixed paths there.
_MOUNTS = """\
set -e
mount --make-rshared /
mount -t tmpfs tmpfs /run
for folder in /var/lib /var/log; do
  mkdir -p /run/overlay$folder/upper /run/overlay$folder/work
  mount -t overlay overlay -o lowerdir=$folder,upperdir=/run/overlay$folder/upper,workdir=/run/overlay$folder/work $folder
done
echo 1 >/proc/sys/net/ipv4/ip_forward
"""


class CommandFailed(RuntimeError):
    """A command failed, inside or while the sandbox was made; the message has what it printed."""


@dataclass(frozen=True)
class Inside:
    """A process in the sandbox.

    `outer` is the process that waits for it outside; their ends are one.
    """

    outer: subprocess.Popen[bytes]
    pid: int
    """The number outside, where signals are sent from."""

    def send(self, how: signal.Signals) -> None:
        """Send a signal to the process, not to what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout_seconds: float = 20) -> None:
        """End it by `how`, and by SIGKILL when that takes too long."""
        self.send(how)
        try:
            self.outer.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.outer.wait(timeout_seconds)


@dataclass
class Sandbox:
    """Network, mount and process namespaces; a context manager. Needs root.

    `init` is the program that becomes process 1: it waits, and buries orphans. Logs go below `folder`, which must not be
    in /run, /var/lib or /var/log: those are others inside.
    """

    folder: Path
    init: Path
    number: int = 0
    _holder: subprocess.Popen[bytes] | None = None
    _init_pid: int = 0
    _network: int | None = None
    """Keeps the network, and so the claim on the number, while the rest is taken away."""
    _started: list[Inside] = field(default_factory=list)

    @property
    def host_address(self) -> str:
        """The host as seen from inside: servers that pods must reach listen here."""
        return f"10.213.{self.number}.1"

    @property
    def address(self) -> str:
        """The sandbox as seen from the host."""
        return f"10.213.{self.number}.2"

    @property
    def pods(self) -> str:
        """The network of the pods; the host reaches it too."""
        return f"10.214.{self.number}.0/24"

    @property
    def services(self) -> str:
        """The network of the services; the host reaches it too."""
        return f"10.215.{self.number}.0/24"

    @property
    def name(self) -> str:
        """The name of its network device and of its cgroup."""
        return _name(self.number)

    def __enter__(self) -> Self:
        try:
            self._hold()
            self._connect()
            self._mount()
            self._make_cgroup()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, *command: str, timeout_seconds: float = 60) -> str:
        """Run a command inside to its end and return what it printed.

        Raises:
            CommandFailed: with what it printed, if it failed.
        """
        return _run([*self._enter(), *command], timeout_seconds)

    def start(self, name: str, command: Sequence[str]) -> Inside:
        """Start a command inside; its output is added to `<folder>/<name>.log`."""
        outer = processes.start([*self._enter(), *command], self.log_of(name))
        inside = Inside(outer, _child_of(outer))
        self._started.append(inside)
        return inside

    def make_cgroup(self, name: str) -> str:
        """Make a cgroup of that name in each hierarchy and return its path there; it goes with the sandbox."""
        for folder in self._cgroup_folders():
            (folder / name).mkdir()
            _delegate(folder / name)
        return f"/{self.name}/{name}"

    def log_of(self, name: str) -> Path:
        """The file with the output of a command that `start` started."""
        return self.folder / f"{name}.log"

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self._init_pid}", "--net", "--mount", "--pid", "--wd=/", "--"]

    def _hold(self) -> None:
        command = [
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
            str(self.init),
        ]
        self._holder = processes.start(command, self.log_of("sandbox"))
        pid = self._init_pid = _child_of(self._holder)
        program = Path(f"/proc/{pid}/exe")
        processes.wait_until_ready(
            self._holder, lambda: program.resolve() == self.init.resolve(), "unshare", self.log_of("sandbox"), 20
        )
        self._network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)

    def _end(self) -> None:
        """Kill process 1, and with it everything inside; the number is freed last."""
        if self._holder is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._init_pid or self._holder.pid, signal.SIGKILL)
        for inside in self._started:
            # One whose child is stopped stops itself, and then takes no note of the end, which process 1 waits for.
            inside.outer.kill()
        for process in [self._holder, *(inside.outer for inside in self._started)]:
            process.wait(_END_SECONDS)
        if self.number:
            self._remove_cgroup()
            _run(["ip", "link", "delete", self.name])
        if self._network is not None:
            os.close(self._network)
        self._holder = self._network = None

    def _connect(self) -> None:
        """Lay a cable from the host to the sandbox; the name of the host's end is what claims the number."""
        self.number = self._claim_number()
        _run(["ip", "address", "add", f"{self.host_address}/24", "dev", self.name])
        _run(["ip", "link", "set", self.name, "up"])
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "uplink")
        self.run("ip", "link", "set", "uplink", "up")
        for network in (self.pods, self.services):
            _run(["ip", "route", "add", network, "via", self.address])

    def _claim_number(self) -> int:
        for number in range(1, _MOST_AT_ONCE + 1):
            cable = ["ip", "link", "add", _name(number), "type", "veth", "peer", "name", "uplink"]
            try:
                _run([*cable, "netns", str(self._init_pid)])
            except CommandFailed as problem:
                if "File exists" not in str(problem):
                    raise
            else:
                return number
        raise CommandFailed(f"There are {_MOST_AT_ONCE} test clusters on this machine already: `ip link` lists them.")

    def _mount(self) -> None:
        lines = [_MOUNTS, f"mkdir {INSIDE}; mount --bind {shlex.quote(str(self.folder))} {INSIDE}\n"]
        for setting, value in _KERNEL_SETTINGS.items():
            file = f"/run/kernel-settings/{setting}"
            lines.append(
                f"mkdir -p {Path(file).parent}; echo {value} >{file}; mount --bind {file} /proc/sys/{setting}\n"
            )
        self.run("sh", "-c", "".join(lines))

    def _make_cgroup(self) -> None:
        self._remove_cgroup()  # one that a killed run left behind: the number was free, so nothing is in it
        for folder in self._cgroup_folders():
            folder.mkdir()
            for file, weight in _WEIGHTS.items():
                if (folder / file).exists():
                    (folder / file).write_text(weight)
            _delegate(folder.parent)
            _delegate(folder)

    def _remove_cgroup(self) -> None:
        deadline = time.monotonic() + _END_SECONDS
        for folder in self._cgroup_folders():
            for inner in sorted(folder.glob("**/"), reverse=True) if folder.exists() else []:
                while True:
                    try:
                        inner.rmdir()
                        break
                    except OSError:
                        if time.monotonic() > deadline:
                            raise
                        time.sleep(0.05)

    def _cgroup_folders(self) -> Iterator[Path]:
        """One folder in each hierarchy: a dozen in version 1, one in version 2."""
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mounted, kind, *_ = line.split()
            if kind in ("cgroup", "cgroup2") and Path(mounted).is_relative_to(_CGROUPS):
                yield Path(mounted) / self.name


def _name(number: int) -> str:
    return f"exactlyonce{number}"


def _delegate(folder: Path) -> None:
    """Let cgroups below `folder` limit what is limited here (version 2 only; in version 1 they always may)."""
    control = folder / "cgroup.subtree_control"
    if control.exists():
        for controller in (folder / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):
                control.write_text(f"+{controller}")


def _child_of(outer: subprocess.Popen[bytes]) -> int:
    """Return the one child of a process that forks once, when it has."""
    while True:
        try:
            children = psutil.Process(outer.pid).children()
        except psutil.NoSuchProcess:
            children = []
        if children:
            return children[0].pid
        if outer.poll() is not None:
            raise CommandFailed(
                f"{outer.args!r} ended at once with status {outer.returncode}; its log is in the folder."
            )
        time.sleep(0.01)


def _run(command: Sequence[str], timeout_seconds: float = 60) -> str:
    done = subprocess.run(list(command), check=False, capture_output=True, text=True, timeout=timeout_seconds)
    if done.returncode:
        raise CommandFailed(f"`{' '.join(command)}` failed with status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout
