"""What a plain `pip install exactlyonce-operator` gives: the command line, and a sentence for what an extra has.

The wheel is built and put into a virtual environment whose site-packages have nothing but it and what it declares, as links
into the environment of the tests: no network is needed.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from exactlyonce.cli.main import main

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel in it."""

    folder: Path

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def install(self, distribution: str) -> None:
        """Link an installed distribution, and whatever it needs, into it."""
        found = importlib.metadata.distribution(distribution)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = self.packages / top
            if not link.is_symlink():
                link.symlink_to(Path(str(found.locate_file(top))))
        for needed in requirements(found):
            if not any(self.packages.glob(f"{needed.name.replace('-', '_')}-*.dist-info")):
                self.install(needed.name)

    def run(self, *arguments: str, script: str = "exactlyonce") -> subprocess.CompletedProcess[str]:
        """Run the program that the wheel declares as a script."""
        module, _, function = PROJECT["project"]["scripts"][script].partition(":")
        return self.python(
            f"import sys; from {module} import {function}; sys.argv[0] = '{script}'; sys.exit({function}())", *arguments
        )

    def python(self, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run code with its Python."""
        command = [str(self.folder / "bin" / "python"), "-c", code, *arguments]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, env=environment)


def requirements(distribution: importlib.metadata.Distribution, extra: str = "") -> Iterator[Requirement]:
    """Yield what a distribution needs here, and with an extra."""
    for line in distribution.requires or ():
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": extra}):
            yield needed


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, with the dependencies that it declares without extras."""
    folder = tmp_path_factory.mktemp("distribution")
    source = folder / "source"  # setuptools leaves a build folder beside pyproject.toml
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "operator", "spark_apps"):
        (source / name).symlink_to(ROOT / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(build, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    venv.create(folder / "environment", with_pip=False, symlinks=True)
    made = Installed(folder / "environment")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(made.packages)
    (described,) = made.packages.glob("exactlyonce_operator-*.dist-info")
    for needed in requirements(importlib.metadata.PathDistribution(described)):
        made.install(needed.name)
    return made


def test_without_extras_every_command_tells_what_it_is_for(plain: Installed) -> None:
    every = "from exactlyonce.cli.main import main; [main([it, '--help'], 'x', standalone_mode=False) for it in main.commands]"
    shown = plain.python(every)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.count("Usage: x ") == len(main.commands)
    assert plain.run("--help", script="kubectl-exactlyonce").stdout.startswith("Usage: kubectl exactlyonce ")


def test_without_extras_a_stream_is_validated_and_a_cluster_looked_for(plain: Installed) -> None:
    valid = plain.run("validate", "examples/orders.yaml")
    assert (valid.returncode, valid.stderr) == (0, "")
    for command in (["logs", "orders"], ["offsets", "orders"]):
        looked = plain.run(*command)
        assert (looked.returncode, looked.stdout) == (1, "")
        assert looked.stderr.startswith("No cluster can be found (")
        assert len(looked.stderr.splitlines()) == 1


def test_a_command_that_needs_an_extra_says_which_in_one_sentence(plain: Installed, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets" / "warehouse"
    secrets.mkdir(parents=True)
    for key, value in {"host": "127.0.0.1", "port": "1", "dbname": "d", "user": "me", "password": "x"}.items():
        (secrets / key).write_text(value)
    at = ["--state", str(tmp_path / "state"), "--secrets", str(secrets.parent)]
    on_s3 = tmp_path / "orders.yaml"
    text = (ROOT / "examples" / "orders.yaml").read_text()
    local, s3 = "local: {path: /var/lib/exactlyonce/orders}", "s3: {location: s3a://lake/orders}"
    assert text.count(local) == 1
    on_s3.write_text(text.replace(local, s3))
    for command, module, extra in (
        (["run", "examples/orders.yaml", *at], "pyspark", "local"),
        (["explain", str(on_s3), *at], "botocore", "s3"),
    ):
        told = plain.run(*command)
        assert (told.returncode, told.stdout, told.stderr) == (
            1,
            "",
            f"This command needs {module}, which is not installed; install the extra {extra}: pip install "
            f"'exactlyonce-operator[{extra}]'.\n",
        )
    assert not (tmp_path / "state").exists(), "nothing was begun"


def test_every_extra_that_is_told_of_has_the_package_that_is_missing() -> None:
    from exactlyonce.cli.commands import _EXTRAS

    extras = {
        name: [Requirement(it) for it in listed] for name, listed in PROJECT["project"]["optional-dependencies"].items()
    }

    def names(extra: str) -> set[str]:
        own = {needed.name.replace("-", "_") for needed in extras[extra]}
        inner = {name for needed in extras[extra] if needed.name == "exactlyonce-operator" for name in needed.extras}
        return own.union(*(names(name) for name in inner))

    for module, extra in _EXTRAS.items():
        assert {"botocore": "boto3"}.get(module, module) in names(extra)


def test_the_drivers_image_has_what_both_halves_share_and_nothing_of_the_command_line() -> None:
    base, image = set(PROJECT["project"]["dependencies"]), set(PROJECT["dependency-groups"]["driver-image"])
    extras = PROJECT["project"]["optional-dependencies"]
    assert image - base == {*extras["driver"], *extras["s3"]}, "a pod may have to reconcile a checkpoint on S3"
    pinned = (ROOT / "requirements" / "driver.txt").read_text()
    assert "\nboto3==" in pinned or pinned.startswith("boto3==")
    for needed in map(Requirement, base):
        is_pinned = f"\n{needed.name}==" in f"\n{pinned}"
        if needed.name in ("click", "rich"):
            assert not is_pinned or "# via pyiceberg" in pinned, "a library of a sink has a command line of its own"
        else:
            assert is_pinned != (needed.name in ("kubernetes", "psutil")), needed.name


_NOT_IN_THE_DRIVERS_IMAGE = ("click", "kopf", "kubernetes", "psutil", "rich", "prometheus_client")
_OF_THE_DRIVER = (
    "exactlyonce_spark.driver, exactlyonce_spark.executor, "
    "exactlyonce.api.resource, exactlyonce.connectors.kafka.bounds"
)
_OF_ITS_RECONCILIATION = "exactlyonce.init_container.__main__, exactlyonce.checkpoint.s3"


@pytest.mark.parametrize(
    ("modules", "hidden"),
    [
        (_OF_THE_DRIVER, (*_NOT_IN_THE_DRIVERS_IMAGE, "boto3")),
        (_OF_ITS_RECONCILIATION, _NOT_IN_THE_DRIVERS_IMAGE),
    ],
    ids=["driver and executors", "reconciliation on S3"],
)
def test_what_a_drivers_pod_runs_needs_only_what_its_image_has(modules: str, hidden: tuple[str, ...]) -> None:
    """With everything else of this environment hidden."""
    code = f"import sys; sys.modules.update(dict.fromkeys({hidden!r})); import {modules}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_operator_brings_the_time_zones_of_schedules_since_a_slim_image_may_have_none(plain: Installed) -> None:
    code = (
        "import zoneinfo; zoneinfo.reset_tzpath(())\n"  # as where the system has no zones
        "from exactlyonce.api.replay_schedule import ReplaySchedule\n"
        "from exactlyonce.reconcile.replay_schedule import zone_of\n"
        "print(zone_of(ReplaySchedule(schedule='0 3 * * *', time_zone='Europe/Berlin')))"
    )
    assert "TimeZoneUnknown" in plain.python(code).stderr, "nothing else here brings them"
    (described,) = plain.packages.glob("exactlyonce_operator-*.dist-info")
    of_the_operator = requirements(importlib.metadata.PathDistribution(described), "operator")
    for needed in of_the_operator:
        if needed.name == "tzdata":  # the others of the extra are what other tests here are without
            plain.install(needed.name)
    assert plain.python(code).stdout == "Europe/Berlin\n"
