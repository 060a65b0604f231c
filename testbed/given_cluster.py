"""A cluster that somebody else runs, for tests that need no more of it than its API server and its nodes.

TEST_KUBECONFIG is the kubeconfig of an administrator, TEST_HOST_ADDRESS an address of this machine that its pods reach,
TEST_IMAGES the operator's and the drivers' image as its nodes pull them, with a comma between. kubectl and helm are those on
the PATH. Its definition of streams is replaced, so it is one for tests.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from testbed.cluster import Cluster

KUBECONFIG, HOST_ADDRESS, IMAGES = "TEST_KUBECONFIG", "TEST_HOST_ADDRESS", "TEST_IMAGES"


@dataclass(frozen=True, slots=True)
class Given:
    """What the environment says of a cluster."""

    kubeconfig: Path
    host_address: str
    operator_image: str
    spark_image: str


def given() -> Given | None:
    """Return the cluster that the environment names, or None where it names none.

    Raises:
        ValueError: with a sentence, if it is named by half.
    """
    kubeconfig = os.environ.get(KUBECONFIG)
    if not kubeconfig:
        return None
    address, images = os.environ.get(HOST_ADDRESS), os.environ.get(IMAGES, "").split(",")
    if not address or len(images) != 2 or not all(images):
        raise ValueError(
            f"{KUBECONFIG} needs {HOST_ADDRESS} (this machine, as pods of that cluster reach it) and {IMAGES} (the operator's "
            "and the drivers' image, with a comma between) beside it."
        )
    return Given(Path(kubeconfig), address, images[0], images[1])


def missing() -> str | None:
    """Return what is missing to use a given cluster, as a sentence, or None."""
    lacks = [program for program in ("kubectl", "helm") if shutil.which(program) is None]
    return f"A given cluster is used by {' and '.join(lacks)}, which the PATH has not." if lacks else None


@dataclass
class GivenCluster(Cluster):
    """A `Cluster` that is there and stays. What only its machines could do is refused by `refuse`, as by skipping a test."""

    named: Given | None = None
    refuse: Callable[[str], NoReturn] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        return

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig that was given."""
        return self._named.kubeconfig

    @property
    def kubectl_program(self) -> Path:
        """The kubectl of the PATH."""
        return _program("kubectl")

    @property
    def helm_program(self) -> Path:
        """The helm of the PATH."""
        return _program("helm")

    @property
    def host_address(self) -> str:
        """The address that was given."""
        return self._named.host_address

    @property
    def node_names(self) -> list[str]:
        """The names of its nodes."""
        return self.kubectl("get", "nodes", "--output=jsonpath={.items[*].metadata.name}").split()

    def freeze(self, node: str) -> None:
        """Refuse."""
        self._refuse("stops the kubelet of a node")

    def kill_container(self, namespace: str, pod: str, how: Any = None) -> None:
        """Refuse."""
        self._refuse("kills a container past the API server")

    def log_on_node(self, node: str, namespace: str, pod: str) -> str:
        """Refuse."""
        self._refuse("reads the disk of a node")

    def freeze_container(self, namespace: str, pod: str) -> None:
        """Refuse."""
        self._refuse("stops a container past the API server")

    def stop_api_server(self, how: Any = None) -> None:
        """Refuse."""
        self._refuse("stops the API server")

    def load(self, archive: Path) -> None:
        """Refuse."""
        self._refuse("gives an image to the nodes")

    def load_layout(self, layout: Any) -> None:
        """Refuse."""
        self._refuse("gives images to the nodes")

    @property
    def pids(self) -> dict[str, int]:
        """Refuse."""
        self._refuse("looks at the cluster's processes")

    @property
    def _named(self) -> Given:
        assert self.named is not None
        return self.named

    def _refuse(self, what: str) -> NoReturn:
        assert self.refuse is not None
        self.refuse(f"This test {what}, which only a cluster of its own allows: unset {KUBECONFIG}.")


def _program(name: str) -> Path:
    found = shutil.which(name)
    assert found is not None, missing()
    return Path(found)
