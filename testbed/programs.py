"""The programs of the test cluster, built from the Go modules beside this file, once for the user.

Two programs hold eight: the servers (etcd, kube-apiserver, …, kubelet) and the clients (kubectl, helm) are told apart by
the name they are called by. What they share is compiled and linked once, so that a cold build takes half the time.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from exactlyonce_spark.jars import cache_folder
from testbed import cache

SOURCE = Path(__file__).with_name("kubernetes")
KUBERNETES = "1.36.3"  # as in go.mod; the programs report it as theirs

_NAMES = {
    "servers": ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"],
    "clients": ["kubectl", "helm"],
}
_VERSION = "k8s.io/component-base/version"
_LINK = f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"
# No debug information, and a compiler that collects its garbage later: together a quarter less time.
_BUILD = ["-trimpath", "-gcflags=all=-dwarf=false", f"-ldflags={_LINK}"]
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOGC": "400", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}


def _key() -> str:
    return cache.key_of([*SOURCE.glob("go.*"), *SOURCE.glob("*/*.go")], *_BUILD)


def built() -> bool:
    """Whether `ensure_programs` has nothing to build."""
    return (cache_folder() / "testbed" / "programs" / _key()).is_dir()


def ensure_programs(report: cache.Report = cache.silent) -> Path:
    """Return the folder with all programs and `pause`, building them if they are not in the cache.

    Raises:
        NotMade: with Go's last lines.
    """
    return cache.made_once("programs", _key(), lambda folder: _build(folder, report))


def _build(folder: Path, report: cache.Report) -> None:
    environment = {**os.environ, **_ENVIRONMENT}
    report("Kubernetes, etcd, kubectl and helm are built from source, once: 5 to 10 minutes on 2 cores")
    total, done = _count_packages(environment), 0

    def count(line: str) -> None:
        nonlocal done
        if not line.startswith(("go:", "#")):
            done = min(done + 1, total)
            report(f"  [{done}/{total}] Go packages")

    command = ["go", "build", "-v", *_BUILD, "-o", f"{folder}/", "./servers", "./clients", "./pause"]
    cache.run(command, "Building the test cluster's programs", directory=SOURCE, environment=environment, line=count)
    for program, names in _NAMES.items():
        for name in names:
            (folder / name).symlink_to(program)


def _count_packages(environment: dict[str, str]) -> int:
    """Fetch the modules, and return how many packages will be compiled when none is in Go's own cache."""
    listed = subprocess.run(
        ["go", "list", "-deps", "./..."], check=False, capture_output=True, text=True, cwd=SOURCE, env=environment
    )
    if listed.returncode:
        raise cache.NotMade(
            "The Go modules of the test cluster could not be fetched: is the module proxy reachable (GOPROXY)? "
            f"Go's last lines:\n{listed.stderr[-2000:]}"
        )
    return len(listed.stdout.splitlines())
