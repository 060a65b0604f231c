"""The test cluster keeps what the other tests of this folder take for granted, and leaves the machine as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from testbed.cluster import Cluster, KubectlFailed
from testbed.images import Images
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.s3 import S3
from tests.cluster import job
from tests.cluster.pods import CONTAINER_SECURITY, POD_SECURITY, SCRATCH, SCRATCH_MOUNT, apply, pod, wait_until_ended
from tests.combinations import only_in_full
from tests.rig import eventually

RECORDS = 200


def node_status(cluster: Cluster, node: str) -> str:
    """Return whether a node is Ready: True, False or Unknown."""
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return cluster.kubectl("get", "node", node, f"--output={path}")


def test_both_nodes_are_ready_and_of_the_release_that_go_mod_names(cluster: Cluster) -> None:
    nodes = json.loads(cluster.kubectl("get", "nodes", "--output=json"))["items"]
    assert [node["metadata"]["name"] for node in nodes] == ["node1", "node2"]
    assert [node_status(cluster, node) for node in cluster.node_names] == ["True", "True"]
    assert "k8s.io/kubernetes v1.36.3" in Path("testbed/kubernetes/go.mod").read_text()
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes} == {"v1.36.3"}


@only_in_full
def test_spark_runs_a_job_in_executor_pods_that_reach_kafka_postgres_and_s3_on_the_host(
    cluster: Cluster, images: Images, namespace: str, name: str, kafka: Kafka, postgres_18: Postgres, s3: S3
) -> None:
    kafka.create_topic(name, partitions=4)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % 4)
    assert producer.flush(60) == 0
    database = postgres_18.create_database(name)
    postgres_18.execute("create table landed (id int, pod text, archive bool)", name)
    s3.create_bucket("lake")
    driver = pod(
        "driver",
        images.spark,
        ["python3", "-c", Path(job.__file__).read_text()],
        environment={
            "KAFKA": kafka.bootstrap_servers,
            "TOPIC": name,
            "POSTGRES": database,
            "S3": s3.endpoint,
            "IMAGE": images.spark,
            "EXECUTOR": json.dumps(executor_template()),
        },
        serviceAccountName="driver",
    )
    apply(cluster, namespace, *driver_rights(), driver)
    log = wait_until_ended(cluster, namespace, "driver")
    assert "the driver was driver" in log
    landed = postgres_18.execute("select id, pod, archive from landed", name)
    assert sorted(int(str(number)) for number, _, _ in landed) == list(range(RECORDS))
    writers = {str(writer) for _, writer, _ in landed}
    assert len(writers) == 2, "both executors wrote"
    assert all(writer.endswith(("-exec-1", "-exec-2")) for writer in writers), "and the driver did not"
    assert all(archive for _, _, archive in landed), "executors start with the class archive that a driver made"
    entries = s3.client().list_objects_v2(Bucket="lake", Prefix="records/part-")["Contents"]
    keys = [entry["Key"] for entry in entries]
    texts = [s3.client().get_object(Bucket="lake", Key=key)["Body"].read().decode() for key in keys]
    assert sorted(int(line) for text in texts for line in text.split()) == list(range(RECORDS))


def test_a_pod_that_may_be_root_is_refused_where_only_restricted_ones_are_admitted(
    cluster: Cluster, images: Images, namespace: str
) -> None:
    with pytest.raises(KubectlFailed, match=r'violates PodSecurity "restricted:latest".*runAsNonRoot != true'):
        apply(cluster, namespace, pod("root", images.operator, ["id"], securityContext={}))


def test_the_operators_image_has_no_java_runs_as_nobody_in_particular_and_cannot_write_its_root(
    cluster: Cluster, images: Images, namespace: str
) -> None:
    script = "id --user; command -v java || echo no java; python3 -m exactlyonce.cli.main --version; touch /opt/x"
    apply(cluster, namespace, pod("look", images.operator, ["sh", "-c", f"{script}; true"]))
    lines = wait_until_ended(cluster, namespace, "look").splitlines()
    assert lines[:2] == ["65532", "no java"]
    assert "Read-only file system" in lines[-1]


@only_in_full
def test_a_lost_nodes_pods_run_on_after_the_cluster_has_given_them_up(
    cluster: Cluster, images: Images, namespace: str, name: str, postgres_18: Postgres
) -> None:
    apply(cluster, namespace, beating("zombie", images, postgres_18, name, nodeName="node2"))
    eventually(lambda: beats(postgres_18, name) > 0, "the pod beats")
    cluster.freeze("node2")
    try:
        eventually(lambda: node_status(cluster, "node2") == "Unknown", "the node is seen to be lost", 180)
        cluster.kubectl("delete", "pod", "zombie", "--namespace", namespace, "--force", "--grace-period=0")
        assert "zombie" not in cluster.kubectl("get", "pods", "--namespace", namespace, "--output=name")
        before = beats(postgres_18, name)
        eventually(lambda: beats(postgres_18, name) > before, "it beats on")
        assert node_status(cluster, "node1") == "True"
    finally:
        cluster.thaw("node2")
    eventually(lambda: node_status(cluster, "node2") == "True", "the node is back", 180)
    sessions = f"select count(*) from pg_stat_activity where datname = '{name}'"
    eventually(lambda: postgres_18.execute(sessions)[0][0] == 0, "the kubelet has ended what was given up", 180)


def test_a_frozen_container_does_nothing_until_it_is_thawed_and_a_killed_one_ends_as_killed(
    cluster: Cluster, images: Images, namespace: str, name: str, postgres_18: Postgres
) -> None:
    apply(cluster, namespace, beating("heart", images, postgres_18, name))
    eventually(lambda: beats(postgres_18, name) > 0, "the pod beats", 120)
    cluster.freeze_container(namespace, "heart")
    before = beats(postgres_18, name)
    postgres_18.execute("select pg_sleep(1)")
    assert beats(postgres_18, name) == before
    cluster.thaw_container(namespace, "heart")
    eventually(lambda: beats(postgres_18, name) > before, "it beats again")
    cluster.kill_container(namespace, "heart")
    exit_code = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"
    ask = ("get", "pod", "heart", "--namespace", namespace, f"--output={exit_code}")
    eventually(lambda: cluster.kubectl(*ask) == "137", "the kubelet tells how it ended")


def test_what_the_api_server_knew_it_knows_after_a_crash_and_pods_did_not_notice(
    cluster: Cluster, images: Images, namespace: str
) -> None:
    apply(cluster, namespace, pod("steady", images.operator, ["sleep", "600"]))
    chosen = ("pod/steady", "--namespace", namespace)
    cluster.kubectl("wait", *chosen, "--for=condition=Ready", "--timeout=100s")
    started = cluster.kubectl(
        "get", *chosen, "--output=jsonpath={.status.containerStatuses[0].state.running.startedAt}"
    )
    process = cluster.pids["apiserver"]
    cluster.restart_api_server()
    assert cluster.pids["apiserver"] != process
    again = cluster.kubectl("get", *chosen, "--output=jsonpath={.status.containerStatuses[0].state.running.startedAt}")
    assert (started, started != "") == (again, True)


def test_an_image_that_the_nodes_have_not_cannot_come_from_anywhere(cluster: Cluster, namespace: str) -> None:
    apply(cluster, namespace, pod("stranger", "registry.invalid/nothing:1", ["true"]))
    reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}"
    ask = ("get", "pod", "stranger", "--namespace", namespace, f"--output={reason}")
    eventually(lambda: cluster.kubectl(*ask) in ("ErrImagePull", "ImagePullBackOff"), "the pull has failed", 120)


@only_in_full
def test_a_cluster_that_has_ended_leaves_nothing_on_the_machine(possible: None, tmp_path: Path) -> None:
    before = machine()
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        pids = list(cluster.pids.values())
        address = cluster.host_address
        assert address in subprocess.run(["ip", "address"], check=True, capture_output=True, text=True).stdout
        assert machine() == before
        cluster.freeze("node1")
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert traces(tmp_path, address) == []
    assert machine() == before
    kept = {path.suffix for path in (tmp_path / "cluster").iterdir()}
    assert kept <= {".log", ".kubeconfig", ".yaml", ".tar", ""}


@only_in_full
def test_a_test_run_that_is_killed_takes_its_cluster_with_it(possible: None, tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from testbed.cluster import Cluster\n"
        "with Cluster(Path(sys.argv[1]), nodes=1) as cluster: print(cluster.host_address, flush=True); time.sleep(600)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "cluster")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        address = run.stdout.readline().strip()
        assert address, "the cluster came up"
        assert traces(tmp_path, address), "and it can be seen"
        run.send_signal(signal.SIGKILL)
    eventually(lambda: traces(tmp_path, address) == [], "every process, mount and device is gone")


def beating(name: str, images: Images, server: Postgres, database: str, **spec: Any) -> dict[str, Any]:
    """Return a pod that writes into a new database ten times a second."""
    script = (
        "import os, psycopg2, time\n"
        "connection = psycopg2.connect(os.environ['POSTGRES'])\n"
        "connection.autocommit = True\n"
        "while True: connection.cursor().execute('insert into beats default values'); time.sleep(0.1)\n"
    )
    environment = {"POSTGRES": server.create_database(database)}
    server.execute("create table beats (at timestamptz default clock_timestamp())", database)
    return pod(name, images.operator, ["python3", "-c", script], environment=environment, **spec)


def beats(server: Postgres, database: str) -> int:
    """Return how many times the pod has beaten."""
    return int(str(server.execute("select count(*) from beats", database)[0][0]))


def machine() -> list[str]:
    """Return what a cluster could change of the machine and must not: rules, settings of the kernel, folders of kubelets."""
    commands = (["nft", "list", "ruleset"], ["ip", "rule"], ["ip", "netns"])
    shown = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for command in commands]
    settings = (
        "net/ipv4/ip_forward",
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
    )
    values = [(Path("/proc/sys") / name).read_text() for name in settings]
    folders = ("/var/lib/kubelet", "/var/lib/cni", "/run/containerd", "/opt/containerd", "/usr/libexec/kubernetes")
    return [*shown, *values, *(f"{folder} {os.path.exists(folder)}" for folder in folders)]


def traces(folder: Path, address: str) -> list[str]:
    """Return the processes, mounts, addresses and cgroups of a cluster that can be seen on the machine."""
    own = {os.getpid()}
    processes = [
        f"process {process.pid} {process.info['name']}"
        for process in psutil.process_iter(["name", "cmdline", "status"])
        if str(folder / "cluster") in " ".join(process.info["cmdline"] or []) and process.pid not in own
    ]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    devices = subprocess.run(["ip", "address"], check=True, capture_output=True, text=True).stdout.splitlines()
    return [*processes, *mounts, *(line for line in devices if f" {address}/" in line)]


def driver_rights() -> list[dict[str, Any]]:
    """Return a service account that may make pods and watch them, and nothing else."""
    subject = {"kind": "ServiceAccount", "name": "driver"}
    verbs = ["create", "get", "list", "watch", "delete", "deletecollection"]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "driver"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "driver"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "driver"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "driver"},
            "subjects": [subject],
        },
    ]


def executor_template() -> dict[str, Any]:
    """Return what Spark makes an executor's pod of."""
    container = {"name": "executor", "securityContext": CONTAINER_SECURITY, "volumeMounts": [SCRATCH_MOUNT]}
    spec = {"securityContext": POD_SECURITY, "containers": [container], "volumes": [SCRATCH]}
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}
