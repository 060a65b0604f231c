"""What the test cluster needs of this machine: say what is missing, and install it where that is asked for.

    python -m testbed.cluster_tools    install the packages (Debian, as root), build the programs and the images

Installs nothing when imported. Where this machine cannot run the cluster, the command says why and ends with 0: the tests
that need it are skipped with the same sentence.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

from testbed import cache, programs
from testbed.containerd import network_plugins

# A program, and the Debian package that has it.
_PROGRAMS = {
    "buildah": "buildah",
    "containerd": "containerd",
    "ctr": "containerd",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "nsenter": "util-linux",
    "runc": "runc",
    "unshare": "util-linux",
}
_NETWORK_PLUGINS_PACKAGE = "containernetworking-plugins"


def missing() -> str | None:
    """Return what this machine lacks to run the test cluster, as a sentence, or None when it lacks nothing."""
    return _cannot_be_installed() or _lacks_packages()


def _cannot_be_installed() -> str | None:
    """What `install` cannot help with."""
    if sys.platform != "linux":
        return f"The test cluster needs Linux; this is {sys.platform}."
    if os.geteuid() != 0:
        return "The test cluster needs root: it makes namespaces, mounts and cgroups."
    if not programs.built() and shutil.which("go") is None:
        return "The test cluster is built from source, and there is no `go` on the PATH: install Go 1.26 or newer."
    if shutil.which("unshare") is not None:
        command = ["unshare", "--net", "--mount", "--pid", "--fork", "true"]
        tried = subprocess.run(command, check=False, capture_output=True, text=True)
        if tried.returncode:
            return f"The test cluster needs namespaces, and this machine gives none: {tried.stderr.strip()}."
    return None


def _lacks_packages() -> str | None:
    packages = _missing_packages()
    if not packages:
        return None
    return f"The test cluster needs the Debian packages {', '.join(packages)}: `make cluster-tools` installs them."


def _missing_packages() -> list[str]:
    packages = {package for program, package in _PROGRAMS.items() if shutil.which(program) is None}
    if not (network_plugins() / "bridge").exists():
        packages.add(_NETWORK_PLUGINS_PACKAGE)
    return sorted(packages)


def install() -> None:
    """Install the missing packages with apt-get, which may remove nothing for them.

    Raises:
        NotMade: with apt's last lines.
    """
    packages = _missing_packages()
    if not packages or shutil.which("apt-get") is None:
        return
    print(f"Installing {', '.join(packages)}", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    cache.run(["apt-get", "update", "-qq"], "apt-get update", environment=environment)
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "--no-remove", *packages]
    cache.run(command, "apt-get install", environment=environment)


def main() -> int:
    """Install, build, and say how long it took."""
    from testbed.image_store import ensure_store
    from testbed.images import ensure_images

    if os.environ.get("TEST_KUBECONFIG"):
        print("TEST_KUBECONFIG names a cluster: nothing is built for one of our own.", file=sys.stderr)
        return 0
    started, screen = time.monotonic(), cache.Screen()
    try:
        if _cannot_be_installed() is None:
            install()
        lack = missing()
        if lack is not None:
            print(f"{lack} Tests that need it will be skipped.", file=sys.stderr)
            return 0
        programs.ensure_programs(screen)
        ensure_store(ensure_images(screen), screen)
    except cache.NotMade as problem:
        screen.end()
        print(problem, file=sys.stderr)
        return 1
    screen.end()
    print(f"The test cluster's programs and images are in place ({time.monotonic() - started:.0f} s).", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
