"""What drivers need in a namespace: an account, its rights and who may connect, by a command and as the chart makes them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from exactlyonce.control.cluster_reader import ClusterReader, ClusterSilent, ReadRefused
from exactlyonce.launch.api_server import CONFLICT, NOT_FOUND, Answered, ApiServerUnreachable, asked
from exactlyonce.launch.driver_document import BLOCK_PORT, METRICS_PORT, RPC_PORT
from exactlyonce.launch.pod_names import DRIVER, EXECUTOR, ROLE_LABEL

_RBAC, _NETWORKING = "rbac.authorization.k8s.io", "networking.k8s.io"
_PLURALS = {"NetworkPolicy": "networkpolicies"}
_OR_NO_POLICY = ", or leave it as it is with --no-network-policy"
_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MANAGER = "exactlyonce-init"
_VERBS = ["create", "get", "list", "watch", "patch", "delete", "deletecollection"]
"""What Spark's scheduler does with executors. The chart's templates/drivers.yaml says the same; a test compares the two."""


def driver_account(namespace: str, account: str) -> list[dict[str, Any]]:
    """Return the service account, its role and the binding of the two. Performs no I/O."""
    metadata = _metadata(namespace, account)
    return [
        # Driver pods ask for its token, executors get none.
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": False},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": _VERBS}],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    ]


def driver_policy(namespace: str, account: str) -> dict[str, Any]:
    """Return the NetworkPolicy of drivers and executors, which has the account's name. Performs no I/O.

    Who may see Spark's user interface and where drivers may connect to is told by the chart's values alone. The chart's
    templates/networkpolicy-drivers.yaml says the same; a test compares the two.
    """
    of_spark = {"matchExpressions": [{"key": ROLE_LABEL, "operator": "In", "values": [DRIVER, EXECUTOR]}]}
    return {
        "apiVersion": f"{_NETWORKING}/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(namespace, account),
        "spec": {
            "podSelector": of_spark,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": of_spark}], "ports": [_port(RPC_PORT), _port(BLOCK_PORT)]},
                {"from": [{"namespaceSelector": {}}], "ports": [_port(METRICS_PORT)]},
            ],
        },
    }


def make_driver_account(cluster: ClusterReader, namespace: str, account: str, *, network_policy: bool) -> None:
    """Make the account, or what of it is not there. Each part is applied, so all of it may be repeated at any time.

    Raises:
        ReadRefused, ClusterSilent: if there is no such namespace, this person may not, or it is there and is another's.
    """
    query = urlencode({"fieldManager": _MANAGER, "fieldValidation": "Strict"})
    manifests = driver_account(namespace, account)
    for manifest in [*manifests, driver_policy(namespace, account)] if network_policy else manifests:
        what = f"{manifest['kind']} {namespace}/{account}"
        try:
            asked(cluster.api, "PATCH", f"{_path(manifest)}?{query}", body=manifest, content=_APPLY)
        except Answered as answer:
            raise _told(answer, what, namespace) from None
        except ApiServerUnreachable as problem:
            raise ClusterSilent(
                f"Cannot make {what}: {problem} Run the command again; it changes nothing twice."
            ) from None


def _metadata(namespace: str, account: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/part-of": "exactlyonce", "app.kubernetes.io/component": "driver"}
    return {"name": account, "namespace": namespace, "labels": labels}


def _port(number: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": number}


def _path(manifest: dict[str, Any]) -> str:
    group = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
    metadata = manifest["metadata"]
    plural = _PLURALS.get(manifest["kind"], f"{manifest['kind'].lower()}s")
    return f"{group}/namespaces/{quote(metadata['namespace'])}/{plural}/{quote(metadata['name'])}"


def _told(answer: Answered, what: str, namespace: str) -> ReadRefused:
    if answer.status == NOT_FOUND:
        return ReadRefused(
            f"Cannot make {what}: the API server says: {answer}; create the namespace with "
            f"`kubectl create namespace {namespace}`."
        )
    if answer.status == CONFLICT:
        return ReadRefused(
            f"Cannot make {what}: it exists, and somebody else has set it up differently ({answer}); remove it, or choose "
            f"another name with --service-account{_OR_NO_POLICY if 'NetworkPolicy' in what else ''}."
        )
    return ReadRefused(
        f"Cannot make {what}: the API server says: {answer}; ask for the role admin of namespace {namespace}, which may grant "
        "what drivers need."
    )
