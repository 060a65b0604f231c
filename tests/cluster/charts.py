"""The chart as tests use it: helm as a program, what it renders, and who may do what by the roles in it.

`grants` reads roles and bindings by Kubernetes' rules and knows nothing of the chart's templates.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from scripts.chart_values import CHART
from testbed.cluster import Cluster, KubectlFailed
from testbed.images import Images
from tests.rig import eventually

Document = dict[str, Any]
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))


class HelmFailed(RuntimeError):
    """helm ended with an error; the message is its own."""


@dataclass(frozen=True)
class Helm:
    """helm as an administrator; what it keeps for itself is below `home`. Without `kubeconfig` it can only render."""

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None, timeout_seconds: float = 420) -> str:
        """Run helm, with values on its standard input where there are any, and return what it printed.

        Raises:
            HelmFailed: with what it said.
        """
        environment = {**os.environ, "HOME": str(self.home)}
        if self.kubeconfig is not None:
            environment["KUBECONFIG"] = str(self.kubeconfig)
        command = [str(self.program), *arguments, *(["--values=-"] if values is not None else [])]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment, timeout=timeout_seconds,
            input=None if values is None else json.dumps(values),
        )  # fmt: skip
        if done.returncode:
            raise HelmFailed(f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def render(
        self, values: Mapping[str, Any] | None = None, *, release: str = "exactlyonce", namespace: str = "eo"
    ) -> list[Document]:
        """Return every manifest of the chart. Values that do not say whose streams it runs are for those of all namespaces."""
        given = dict(values or {})
        watch = given.get("watch", {})
        if isinstance(watch, dict) and not watch.get("namespaces"):
            given["watch"] = {"allNamespaces": True, **watch}
        text = self.run("template", release, str(CHART), f"--namespace={namespace}", values=given)
        return [document for document in yaml.safe_load_all(text) if document]


def values_of(example: Path) -> dict[str, Any]:
    """Return the values of an example."""
    return dict(yaml.safe_load(example.read_text()))


def example(name: str) -> dict[str, Any]:
    """Return the values of the example of that name."""
    return values_of(CHART / "examples" / f"{name}.yaml")


def of_kind(documents: Iterable[Document], kind: str) -> list[Document]:
    """Return the manifests of a kind."""
    return [document for document in documents if document["kind"] == kind]


def only(documents: Iterable[Document], kind: str) -> Document:
    """Return the one manifest of a kind."""
    (found,) = of_kind(documents, kind)
    return found


@dataclass(frozen=True)
class Release:
    """One release of the chart on a cluster, with small pods."""

    helm: Helm
    cluster: Cluster
    images: Images
    namespace: str
    watched: tuple[str, ...]
    name: str = "exactlyonce"
    chart: Path = CHART

    @property
    def operator(self) -> str:
        """The name of its Deployment, its account and its Lease."""
        return "exactlyonce-operator"

    def values(self, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the release's values, with changes of whole ones."""
        settled = {
            "image": _image(self.images.operator),
            "watch": {"namespaces": list(self.watched)},
            "secrets": {"names": ["warehouse", "lake"]},
            "drivers": {"image": _image(self.images.spark)},
            "resources": {"requests": {"cpu": "20m", "memory": "128Mi"}},
        }
        return {**settled, **(changes or {})}

    def install(self, changes: Mapping[str, Any] | None = None, *options: str) -> None:
        """Install it, and wait until every pod is ready."""
        self._run("install", changes, *options)

    def upgrade(self, changes: Mapping[str, Any] | None = None) -> None:
        """Upgrade it to other values, and wait until every pod is ready."""
        self._run("upgrade", changes)

    def uninstall(self) -> None:
        """Take it away, and wait until its pods are gone."""
        # helm's own --wait says "still exists, Terminating" seconds after it began, so the wait is the test's. Its pods have a
        # minute to end, and their kubelets and the garbage collector are as slow as the machine.
        self.helm.run(
            "uninstall", self.name, f"--namespace={self.namespace}", "--cascade=foreground", "--ignore-not-found"
        )
        everything = ("get", "deployments,replicasets,pods", f"--namespace={self.namespace}")
        own = f"--selector=app.kubernetes.io/instance={self.name}"
        try:
            eventually(lambda: self.cluster.kubectl(*everything, own, "--output=name") == "", "its pods are gone", 600)
        except AssertionError as problem:
            left = ("get", "deployments,replicasets,pods", "--output=yaml")
            raise AssertionError("\n".join([str(problem), *self._told(left, ("get", "events"))])) from problem

    def pods(self) -> list[Document]:
        """Return its pods that are not on their way out."""
        selector = "--selector=app.kubernetes.io/component=operator"
        found = json.loads(self.kubectl("get", "pods", selector, "--output=json"))["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def holder(self) -> str | None:
        """Return the name of the pod that holds the Lease, or None while nobody does."""
        lease = json.loads(self.kubectl("get", "lease", self.operator, "--output=json"))
        found: str | None = lease["spec"].get("holderIdentity")
        return found

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the release's namespace."""
        return self.cluster.kubectl(*arguments, f"--namespace={self.namespace}")

    def _run(self, command: str, changes: Mapping[str, Any] | None, *options: str) -> None:
        words = [
            command,
            self.name,
            str(self.chart),
            f"--namespace={self.namespace}",
            "--wait",
            "--timeout=5m",
            *options,
        ]
        try:
            self.helm.run(*words, values=self.values(changes))
        except HelmFailed as problem:
            shown = self._told(("describe", "pods"), ("logs", f"deployment/{self.operator}", "--tail=40"))
            raise AssertionError("\n".join([str(problem), *shown])) from problem

    def _told(self, *questions: tuple[str, ...]) -> Iterator[str]:
        """What the cluster says about the release, as far as it answers."""
        for question in questions:
            with suppress(KubectlFailed):
                yield self.kubectl(*question)


def _image(name: str) -> dict[str, str]:
    repository, _, tag = name.rpartition(":")
    return {"repository": repository, "tag": tag}


class Grant(NamedTuple):
    """One thing that an account may do. Without `namespace`, in all of them; without `name`, with every object."""

    namespace: str | None
    resource: str
    verb: str
    name: str | None = None


def grants(documents: Iterable[Document], account: str, namespace: str) -> set[Grant]:
    """Return what a service account may do by the roles and bindings among `documents`; a binding to no role is an error."""
    made = list(documents)
    roles = {_identity(role): role["rules"] for role in made if role["kind"] in ("Role", "ClusterRole")}
    found: set[Grant] = set()
    for binding in made:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        subjects = [(subject["kind"], subject["name"], subject.get("namespace")) for subject in binding["subjects"]]
        if ("ServiceAccount", account, namespace) not in subjects:
            continue
        where = binding["metadata"].get("namespace")
        reference = binding["roleRef"]
        role = (reference["kind"], where if reference["kind"] == "Role" else None, reference["name"])
        found |= set(_grants_of(roles[role], where))
    return found


def _identity(role: Document) -> tuple[str, str | None, str]:
    return role["kind"], role["metadata"].get("namespace"), role["metadata"]["name"]


def _grants_of(rules: list[Document], where: str | None) -> Iterator[Grant]:
    for rule in rules:
        assert "nonResourceURLs" not in rule
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or [None]:
                        yield Grant(where, f"{resource}.{group}".rstrip("."), verb, name)
