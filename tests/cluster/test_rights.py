"""What the operator and the drivers may not do is refused for real: by tokens of their accounts, as the chart makes them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import ApiException

from testbed.cluster import Cluster
from testbed.images import Images
from tests.cluster.charts import Helm, Release
from tests.cluster.drivers import secret
from tests.cluster.pods import apply, pod
from tests.rig import eventually

FORBIDDEN = 403
SYSTEM, WATCHED, OTHER = "rights-system", "rights-watched", "rights-other"
OPERATOR, DRIVER = "exactlyonce-operator", "exactlyonce-driver"
STREAMS = ("exactlyonce.dev", "v1alpha1")

EVERYWHERE = {("namespaces", "get", "kube-system"), ("nodes", "get", "")}
OF_STREAMS = {
    *(("exactlyoncestreams.exactlyonce.dev", verb, "") for verb in ("get", "list", "watch", "update")),
    ("exactlyoncestreams/status.exactlyonce.dev", "update", ""),
    *(("streamreplays.exactlyonce.dev", verb, "") for verb in ("create", "list", "watch", "delete")),
    ("streamreplays/status.exactlyonce.dev", "update", ""),
    *(("pods", verb, "") for verb in ("create", "get", "list", "watch", "patch", "delete")),
    *(("configmaps", verb, "") for verb in ("create", "get", "list", "delete")),
    *(("services", verb, "") for verb in ("create", "get", "delete")),
    *(("events", verb, "") for verb in ("create", "get", "patch")),
    ("secrets", "create", ""),
    ("secrets", "get", "warehouse"),
    ("secrets", "get", "lake"),
}
LEASE = "leases.coordination.k8s.io"
OF_THE_LEASE = {(LEASE, "create", ""), (LEASE, "get", OPERATOR), (LEASE, "update", OPERATOR)}
OF_DRIVERS = {("pods", verb, "") for verb in ("create", "get", "list", "watch", "patch", "delete", "deletecollection")}


class User:
    """A service account, by its own token."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        token = cluster.kubectl("create", "token", name, f"--namespace={namespace}").strip()
        connect: Any = config.new_client_from_config
        api = connect(str(cluster.kubeconfig))
        api.configuration.api_key = {"authorization": f"Bearer {token}"}
        api.configuration.api_key_prefix = {}
        api.configuration.refresh_api_key_hook = None
        self.core: Any = client.CoreV1Api(api)
        self.rbac: Any = client.RbacAuthorizationV1Api(api)
        self.leases: Any = client.CoordinationV1Api(api)
        self.custom: Any = client.CustomObjectsApi(api)
        self._reviews: Any = client.AuthorizationV1Api(api)

    def rights(self, namespace: str) -> set[tuple[str, str, str]]:
        """Return resource, verb and name of all that it may do there, by the API server's own account of its roles."""
        asked = {"spec": {"namespace": namespace}}
        status = self._reviews.create_self_subject_rules_review(asked).status
        assert status.evaluation_error is None or "webhook" not in status.evaluation_error
        return {
            (f"{resource}.{group}".rstrip("."), verb, name)
            for rule in status.resource_rules
            for group in rule.api_groups
            for resource in rule.resources
            for verb in rule.verbs
            for name in rule.resource_names or [""]
        }


@pytest.fixture(scope="module")
def users(cluster: Cluster, images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, User]]:
    """The operator, a driver of the watched namespace, and an account that nobody has given anything."""
    for namespace in (SYSTEM, WATCHED, OTHER):
        cluster.kubectl("create", "namespace", namespace)
        apply(cluster, namespace, *(secret(name, {"password": "hidden"}) for name in ("warehouse", "lake", "private")))
        eventually(functools.partial(has_account, cluster, namespace), "every namespace has an account of its own")
    release = Release(helm_of(cluster, tmp_path_factory), cluster, images, SYSTEM, (WATCHED,))
    release.install({"replicas": 0}, "--take-ownership")
    yield {
        "operator": User(cluster, SYSTEM, OPERATOR),
        "driver": User(cluster, WATCHED, DRIVER),
        "nobody": User(cluster, OTHER, "default"),
    }
    release.uninstall()
    cluster.kubectl("delete", "namespace", SYSTEM, WATCHED, OTHER, "--wait=false")


def has_account(cluster: Cluster, namespace: str) -> bool:
    return "default" in cluster.kubectl("get", "serviceaccounts", f"--namespace={namespace}", "--output=name")


def helm_of(cluster: Cluster, folders: pytest.TempPathFactory) -> Helm:
    home: Path = folders.mktemp("helm")
    return Helm(cluster.helm_program, home, cluster.kubeconfig)


@pytest.mark.parametrize(
    ("who", "where", "expected"),
    [
        ("operator", WATCHED, OF_STREAMS | EVERYWHERE),
        ("operator", SYSTEM, OF_THE_LEASE | EVERYWHERE),
        ("operator", OTHER, EVERYWHERE),
        ("driver", WATCHED, OF_DRIVERS),
        ("driver", OTHER, set()),
        ("driver", SYSTEM, set()),
    ],
)
def test_beside_what_everybody_may_an_account_may_do_this_and_nothing_else(
    users: dict[str, User], who: str, where: str, expected: set[tuple[str, str, str]]
) -> None:
    assert users[who].rights(where) - users["nobody"].rights(where) == expected


Ask = Callable[[User], Any]
ROLE = {"metadata": {"name": "mine"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]}
BINDING = {
    "metadata": {"name": "mine"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": SYSTEM}],
}
TOKEN = {"spec": {"expirationSeconds": 3600}}
ANOTHER = pod("another", "localhost/none", ["true"])

OPERATOR_MAY: dict[str, Ask] = {
    "read a secret that is named": lambda user: user.core.read_namespaced_secret("warehouse", WATCHED),
    "list streams": lambda user: user.custom.list_namespaced_custom_object(*STREAMS, WATCHED, "exactlyoncestreams"),
    "list pods": lambda user: user.core.list_namespaced_pod(WATCHED),
    "read the cluster's id": lambda user: user.core.read_namespace("kube-system"),
}
OPERATOR_MAY_NOT: dict[str, Ask] = {
    "read a secret of another namespace": lambda user: user.core.read_namespaced_secret("warehouse", OTHER),
    "read a secret of its own namespace": lambda user: user.core.read_namespaced_secret("warehouse", SYSTEM),
    "read a secret that is not named": lambda user: user.core.read_namespaced_secret("private", WATCHED),
    "list secrets": lambda user: user.core.list_namespaced_secret(WATCHED),
    "delete a secret": lambda user: user.core.delete_namespaced_secret("warehouse", WATCHED),
    "change a secret": lambda user: user.core.patch_namespaced_secret("warehouse", WATCHED, secret("warehouse", {})),
    "create a secret in another namespace": lambda user: user.core.create_namespaced_secret(OTHER, secret("mine", {})),
    "create a secret in its own namespace": lambda user: user.core.create_namespaced_secret(SYSTEM, secret("mine", {})),
    "list pods of another namespace": lambda user: user.core.list_namespaced_pod(OTHER),
    "delete a pod of another namespace": lambda user: user.core.delete_namespaced_pod("somebody", OTHER),
    "create a pod in another namespace": lambda user: user.core.create_namespaced_pod(OTHER, ANOTHER),
    "list the streams of all namespaces": lambda user: user.custom.list_cluster_custom_object(
        *STREAMS, "exactlyoncestreams"
    ),
    "change the definition": lambda user: user.custom.patch_cluster_custom_object(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "exactlyoncestreams.exactlyonce.dev", {}
    ),
    "give itself a role": lambda user: user.rbac.create_namespaced_role(WATCHED, ROLE),
    "bind itself to a role": lambda user: user.rbac.create_namespaced_role_binding(WATCHED, BINDING),
    "take a driver's token": lambda user: user.core.create_namespaced_service_account_token(DRIVER, WATCHED, TOKEN),
    "run a command in a pod": lambda user: user.core.connect_post_namespaced_pod_exec("somebody", WATCHED),
    "take another's lease": lambda user: user.leases.read_namespaced_lease("another", SYSTEM),
    "list nodes": lambda user: user.core.list_node(),
    "read another namespace's record": lambda user: user.core.read_namespace(OTHER),
}
DRIVER_MAY: dict[str, Ask] = {
    "list the pods of its namespace": lambda user: user.core.list_namespaced_pod(WATCHED),
    "create an executor": lambda user: user.core.create_namespaced_pod(WATCHED, ANOTHER, dry_run="All"),
}
DRIVER_MAY_NOT: dict[str, Ask] = {
    "read a secret of its namespace": lambda user: user.core.read_namespaced_secret("warehouse", WATCHED),
    "list secrets": lambda user: user.core.list_namespaced_secret(WATCHED),
    "create a secret": lambda user: user.core.create_namespaced_secret(WATCHED, secret("mine", {})),
    "read a secret of another namespace": lambda user: user.core.read_namespaced_secret("warehouse", OTHER),
    "list pods of another namespace": lambda user: user.core.list_namespaced_pod(OTHER),
    "delete a pod of another namespace": lambda user: user.core.delete_namespaced_pod("somebody", OTHER),
    "create a pod in another namespace": lambda user: user.core.create_namespaced_pod(OTHER, ANOTHER),
    "read a ConfigMap": lambda user: user.core.read_namespaced_config_map("kube-root-ca.crt", WATCHED),
    "create a Service": lambda user: user.core.create_namespaced_service(WATCHED, {"metadata": {"name": "mine"}}),
    "list streams": lambda user: user.custom.list_namespaced_custom_object(*STREAMS, WATCHED, "exactlyoncestreams"),
    "run a command in a pod": lambda user: user.core.connect_post_namespaced_pod_exec("somebody", WATCHED),
    "take the operator's token": lambda user: user.core.create_namespaced_service_account_token(
        OPERATOR, SYSTEM, TOKEN
    ),
    "give itself a role": lambda user: user.rbac.create_namespaced_role(WATCHED, ROLE),
    "read the operator's lease": lambda user: user.leases.read_namespaced_lease(OPERATOR, SYSTEM),
    "list nodes": lambda user: user.core.list_node(),
}


@pytest.mark.parametrize(
    ("who", "ask"),
    [
        *(pytest.param("operator", ask, id=f"the operator may {what}") for what, ask in OPERATOR_MAY.items()),
        *(pytest.param("driver", ask, id=f"a driver may {what}") for what, ask in DRIVER_MAY.items()),
    ],
)
def test_what_is_allowed_is_done(users: dict[str, User], who: str, ask: Ask) -> None:
    ask(users[who])


@pytest.mark.parametrize(
    ("who", "ask"),
    [
        *(pytest.param("operator", ask, id=f"the operator may not {what}") for what, ask in OPERATOR_MAY_NOT.items()),
        *(pytest.param("driver", ask, id=f"a driver may not {what}") for what, ask in DRIVER_MAY_NOT.items()),
    ],
)
def test_what_is_not_allowed_is_refused(users: dict[str, User], who: str, ask: Ask) -> None:
    with pytest.raises(ApiException) as refused:
        ask(users[who])
    assert refused.value.status == FORBIDDEN, refused.value.body
