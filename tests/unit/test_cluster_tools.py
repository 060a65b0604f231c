"""Where a test cluster cannot be, that is told in one sentence that says what to do; nothing is installed by asking."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed import cluster_tools, programs


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_a_user_who_is_not_root_is_told_why_root_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cluster_tools.missing() == "The test cluster needs root: it makes namespaces, mounts and cgroups."


def test_without_go_it_is_said_that_it_is_built_from_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EXACTLYONCE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no `go` on the PATH: install Go 1.26" in str(cluster_tools.missing())


def test_every_package_that_is_missing_is_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "go").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cluster_tools, "network_plugins", lambda: tmp_path)
    assert cluster_tools.missing() == (
        "The test cluster needs the Debian packages buildah, containerd, containernetworking-plugins, iproute2, mmdebstrap, "
        "nftables, runc, util-linux: `make cluster-tools` installs them."
    )


def test_a_machine_that_gives_no_namespaces_is_known_before_anything_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "go").touch(mode=0o755)
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho unshare failed: Operation not permitted >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert cluster_tools.missing() == (
        "The test cluster needs namespaces, and this machine gives none: unshare failed: Operation not permitted."
    )


def test_the_release_that_the_programs_report_is_the_one_they_are_built_from() -> None:
    assert f"k8s.io/kubernetes v{programs.KUBERNETES}\n" in (programs.SOURCE / "go.mod").read_text()
