"""One cluster for all tests of a run, with servers on the host that its pods reach; skipped where this machine cannot.

What takes minutes (programs and images, once for the user) is made before the first test, with progress shown: it is
nobody's time limit.
"""

from __future__ import annotations

import copy
import itertools
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from exactlyonce.api.resource import API_VERSION, KIND
from scripts import generate_crd
from scripts.resource_kinds import KINDS
from testbed import cache, cluster_tools, given_cluster, image_store
from testbed.cluster import Cluster
from testbed.given_cluster import GivenCluster
from testbed.image_layout import ImageLayout
from testbed.images import Images, ensure_images
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.programs import ensure_programs
from testbed.s3 import S3
from tests.cluster.operators import MakeOperator, MakeStream, OperatorProcess, WholeStream, whole_stream
from tests.cluster.streams import ServerRefused, install
from tests.rig import Rig, eventually

HERE = Path(__file__).parent
MADE = pytest.StashKey[tuple[Images, Path | None]]()
"""The images of the tree as it was when the run began, and the store that has them; none where a cluster is given."""

WithoutRules = Callable[[], AbstractContextManager[None]]

RUN = secrets.token_hex(2)
_numbers = itertools.count(1)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make what the cluster is made of, if tests of this folder will run and this machine lacks nothing."""
    chosen = any(item.path.is_relative_to(HERE) for item in session.items)
    if not chosen or session.config.option.collectonly or lack() is not None:
        return
    named = given()
    if named is not None:
        session.config.stash[MADE] = Images(named.operator_image, named.spark_image, ImageLayout(Path())), None
        return
    screen = cache.Screen()
    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        ensure_programs(screen)
        images = ensure_images(screen)
        store = image_store.ensure_store(images, screen)
        screen.end()
    session.config.stash[MADE] = images, store
    used = ExitStack()
    used.enter_context(cache.in_use(store, images.layout.folder.parent))
    session.config.add_cleanup(used.close)


def given() -> given_cluster.Given | None:
    """Return the cluster that the environment names, if it does."""
    try:
        return given_cluster.given()
    except ValueError as problem:
        raise pytest.UsageError(str(problem)) from None


def lack() -> str | None:
    """Return why there can be no cluster here, or None."""
    return cluster_tools.missing() if given() is None else given_cluster.missing()


@pytest.fixture(scope="session")
def possible() -> None:
    """Skips what needs a cluster where there can be none."""
    why = lack()
    if why is not None:
        pytest.skip(why)


@pytest.fixture(scope="session")
def helm_program(possible: None) -> Path:
    """A helm that fits the cluster."""
    found = None if given() is None else shutil.which("helm")
    return ensure_programs() / "helm" if found is None else Path(found)


@pytest.fixture(scope="session")
def images(possible: None, pytestconfig: pytest.Config) -> Images:
    """The images of the tree as it is."""
    return pytestconfig.stash[MADE][0]


@pytest.fixture(scope="session")
def cluster(possible: None, pytestconfig: pytest.Config, servers: Path) -> Iterator[Cluster]:
    """A cluster of two nodes that have the images, or the one that is given (testbed/given_cluster.py)."""
    named = given()
    if named is not None:
        with GivenCluster(servers / "cluster", named=named, refuse=pytest.skip, _programs=Path()) as there:
            yield there
        return
    with Cluster(servers / "cluster", nodes=2, store=pytestconfig.stash[MADE][1]) as made:
        yield made


@pytest.fixture(scope="session")
def kubeconfig(cluster: Cluster) -> Path:
    """The kubeconfig of an administrator."""
    return cluster.kubeconfig


@pytest.fixture(scope="session")
def kafka(cluster: Cluster, servers: Path) -> Iterator[Kafka]:
    """A Kafka broker on the host that pods reach."""
    with Kafka(servers / "kafka-for-pods", host=cluster.host_address) as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres_18(cluster: Cluster, servers: Path) -> Iterator[Postgres]:
    """PostgreSQL 18 on the host that pods reach."""
    with Postgres(
        servers / "postgres-for-pods", settings={"max_connections": "200"}, host=cluster.host_address
    ) as server:
        yield server


@pytest.fixture(scope="session")
def s3(cluster: Cluster, servers: Path) -> Iterator[S3]:
    """An S3 service on the host that pods reach."""
    with S3(servers / "s3-for-pods", host=cluster.host_address) as service:
        yield service


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own that admits pods of the `restricted` level only."""
    with _made_namespace(cluster, f"test-{RUN}-{next(_numbers)}") as name:
        yield name


@pytest.fixture
def other_namespace(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A second tenant's namespace, alike."""
    with _made_namespace(cluster, f"{namespace}-other") as name:
        yield name


@contextmanager
def _made_namespace(cluster: Cluster, name: str) -> Iterator[str]:
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    # A controller makes the account a moment after the namespace, and until then no pod is admitted.
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=60s")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="module")
def api(kubeconfig: Path) -> Iterator[client.ApiClient]:
    """A client of an administrator, with the definition installed."""
    connect: Any = config.new_client_from_config
    with connect(str(kubeconfig)) as made:
        for kind in KINDS:
            install(made, generate_crd.definition(kind))
        yield made


@pytest.fixture
def without_rules(api: client.ApiClient) -> WithoutRules:
    """For a while the definition has no rules, as an old release's may have been."""
    definition = copy.deepcopy(generate_crd.definition())
    for version in definition["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
        version["schema"]["openAPIV3Schema"].pop("x-kubernetes-validations", None)

    @contextmanager
    def made() -> Iterator[None]:
        try:
            install(api, definition)
            eventually(lambda: takes_anything(api), "the definition without rules is served")
            yield
        finally:
            install(api, generate_crd.definition())
            eventually(lambda: not takes_anything(api), "the definition with its rules is served again")

    return made


def takes_anything(api: client.ApiClient) -> bool:
    """Whether the server takes a stream that says nothing of a stream: it serves a changed definition a moment later."""
    nonsense = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "takes-anything"},
        "spec": {"nonsense": True},
    }
    where = (generate_crd.GROUP, generate_crd.VERSION, "default", generate_crd.PLURAL)
    try:
        client.CustomObjectsApi(api).create_namespaced_custom_object(
            *where, nonsense, dry_run="All", field_validation="Strict"
        )
    except client.ApiException:
        return False
    return True


@pytest.fixture
def make_operator(cluster: Cluster, images: Images, namespace: str, tmp_path: Path) -> Iterator[MakeOperator]:
    """Starts operators of the test's namespace; all of them are ended with the test."""
    with ExitStack() as started:

        def made(**options: Any) -> OperatorProcess:
            own = {"namespaces": namespace, "lease": f"exactlyonce-{namespace}"}
            operator = OperatorProcess(cluster, tmp_path, images.spark, **{**own, **options})
            started.callback(operator.end)
            operator.start()
            return operator

        yield made


@pytest.fixture
def make_stream(
    cluster: Cluster, api: client.ApiClient, namespace: str, kafka: Kafka, postgres_18: Postgres, s3: S3, tmp_path: Path
) -> Iterator[MakeStream]:
    """Makes streams; those whose finalizer is still there when the test ends are let go."""
    s3.create_bucket("lake")
    streams: list[WholeStream] = []

    def made(name: str, changes: Mapping[str, Any] | None = None) -> WholeStream:
        rig = Rig(
            kafka, postgres_18, tmp_path / name, name, user=f"{name}_lands", password=f"hidden-password-of-{name}"
        )
        streams.append(whole_stream(rig, cluster, api, namespace, changes or {}, s3))
        return streams[-1]

    yield made
    for stream in streams:
        try:
            stream.streams.patch(stream.name, {"metadata": {"finalizers": None}})
            stream.streams.delete(stream.name)
        except ServerRefused:
            continue


@pytest.fixture
def admin(kubeconfig: Path) -> Iterator[client.ApiClient]:
    """A client of an administrator; the definition is the chart's to install."""
    connect: Any = config.new_client_from_config
    with connect(str(kubeconfig)) as made:
        yield made


@pytest.fixture
def stream(
    cluster: Cluster, admin: client.ApiClient, namespace: str, name: str, kafka: Kafka, postgres_18: Postgres, s3: S3,
    tmp_path: Path,
) -> Iterator[WholeStream]:  # fmt: skip
    """A stream that names no image and no account: both are the chart's."""
    s3.create_bucket("lake")
    rig = Rig(kafka, postgres_18, tmp_path / name, name, user=f"{name}_lands", password=f"hidden-password-of-{name}")
    made = whole_stream(rig, cluster, admin, namespace, {}, s3, with_account=False)
    yield made
    with suppress(ServerRefused):
        made.streams.patch(made.name, {"metadata": {"finalizers": None}})
        made.streams.delete(made.name)
