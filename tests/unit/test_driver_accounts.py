"""`exactlyonce init NAMESPACE`: the account of drivers is made as often as it is asked for, and a refusal says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from exactlyonce.cli.main import main
from tests.api_server_in_memory import ApiServerInMemory

RBAC = "apis/rbac.authorization.k8s.io/v1/namespaces/shop"
POLICIES = "apis/networking.k8s.io/v1/namespaces/shop/networkpolicies"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServerInMemory]:
    with ApiServerInMemory(tmp_path) as made:
        yield made


def init(server: ApiServerInMemory, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["init", *arguments, "--kubeconfig", str(server.kubeconfig)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize("account", ["exactlyonce-driver", "spark"])
def test_what_drivers_need_is_made_and_made_again(server: ApiServerInMemory, account: str) -> None:
    for _ in range(2):
        result = init(server, "shop", *([] if account == "exactlyonce-driver" else ["--service-account", account]))
        assert (result.exit_code, result.stderr) == (0, "")
        assert f"The drivers of namespace shop run as {account}" in result.stdout
        assert set(server.applied) == {
            f"api/v1/namespaces/shop/serviceaccounts/{account}",
            f"{RBAC}/roles/{account}",
            f"{RBAC}/rolebindings/{account}",
            f"{POLICIES}/{account}",
        }
    bound = server.applied[f"{RBAC}/rolebindings/{account}"]
    assert bound["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "shop"}]
    (rule,) = server.applied[f"{RBAC}/roles/{account}"]["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    assert server.applied[f"api/v1/namespaces/shop/serviceaccounts/{account}"]["automountServiceAccountToken"] is False


def test_a_person_with_policies_of_their_own_keeps_them(server: ApiServerInMemory) -> None:
    server.conflicting = {"networkpolicies"}
    result = init(server, "shop")
    assert result.exit_code == 1
    assert "Cannot make NetworkPolicy shop/exactlyonce-driver: it exists, and somebody else" in result.stderr
    assert result.stderr.rstrip().endswith("or leave it as it is with --no-network-policy.")
    assert init(server, "shop", "--no-network-policy").exit_code == 0
    assert not any(path.startswith(POLICIES) for path in server.applied)


def test_a_namespace_that_is_not_there_is_not_made_and_the_command_says_how(server: ApiServerInMemory) -> None:
    result = init(server, "shpo")
    assert result.exit_code == 1
    assert 'namespaces "shpo" not found; create the namespace with `kubectl create namespace shpo`.' in result.stderr
    assert server.applied == {}


def test_a_right_that_is_missing_is_named_and_what_was_made_before_stays(server: ApiServerInMemory) -> None:
    server.forbidden = {"patch roles"}
    result = init(server, "shop")
    assert result.exit_code == 1
    assert "Cannot make Role shop/exactlyonce-driver: the API server says: roles is forbidden" in result.stderr
    assert "ask for the role admin of namespace shop" in result.stderr
    server.forbidden = set()
    assert init(server, "shop").exit_code == 0


def test_what_another_has_settled_otherwise_is_not_overwritten(server: ApiServerInMemory) -> None:
    server.conflicting = {"roles"}
    result = init(server, "shop")
    assert result.exit_code == 1
    assert "somebody else has set it up differently" in result.stderr
    assert "choose another name with --service-account" in result.stderr


@pytest.mark.parametrize("namespace", ["Shop", "a/b", "-a", "x" * 64])
def test_what_is_no_namespaces_name_reaches_no_server(server: ApiServerInMemory, namespace: str) -> None:
    result = init(server, "--", namespace) if namespace.startswith("-") else init(server, namespace)
    assert result.exit_code == 2
    assert server.applied == {}
