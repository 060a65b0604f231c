"""The project's images, built here without Docker: a Debian base by mmdebstrap, then the Dockerfile by buildah.

Kept in the user's cache by the content of all that goes into them. buildah keeps its layers there as well, so a change of the
code rebuilds one small layer.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exactlyonce_spark.jars import cache_folder, ensure_jars
from testbed import cache
from testbed.image_layout import ImageLayout

ROOT = Path(__file__).resolve().parent.parent
DEBIAN = "bookworm"

TARGETS = ("operator", "spark")
# No manuals, no translations: what Debian's own slim images leave out.
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_MOST_STORED_MEGABYTES = 15_000
_OVERLAYFS = 0x794C7630  # linux/magic.h: no overlay can have its upper layer on another one


@dataclass(frozen=True)
class Images:
    """The images of one state of a tree: the names that pods give to mean them, and the layout that holds both."""

    operator: str
    spark: str
    layout: ImageLayout


def ensure_images(report: cache.Report = cache.silent, root: Path = ROOT) -> Images:
    """Return the images of the tree at `root` as it is now, building what is not in the cache.

    Raises:
        NotMade: with the last lines of the step that failed.
    """
    key = _key(root)
    folder = cache.made_once("images", key, lambda scratch: _Build(scratch, root, key, report).run(), keep=3)
    return Images(_name("operator", key), _name("spark", key), ImageLayout(folder / "layout"))


def _key(root: Path) -> str:
    files = _inputs(root)
    return cache.key_of(files, *(str(file.relative_to(root)) for file in sorted(files)))


def _inputs(root: Path) -> list[Path]:
    folders = [root / "operator" / "exactlyonce", root / "spark_apps", root / "requirements"]
    inside = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    code = [file for file in inside if "__pycache__" not in file.parts and ".egg-info" not in str(file)]
    return [*code, root / "Dockerfile", root / ".dockerignore", *root.glob("scripts/install_packages.sh")]


def _name(target: str, key: str) -> str:
    return f"localhost/exactlyonce-{target}:{key}"


@dataclass(frozen=True)
class _Build:
    """One build of both images into `folder`."""

    folder: Path
    root: Path
    key: str
    report: cache.Report

    def run(self) -> None:
        """Build both images and write their layers."""
        _bound_store()
        base = _base_image(self.report)
        layout = self.folder / "layout"
        for target in TARGETS:
            name = _name(target, self.key)
            build = [*self._build_command(target, base), str(self.root)]
            cache.run(build, f"Building the {target} image", line=self._steps(target))
            self.report(f"{target} image: taking its layers out of buildah's store")
            push = [*_buildah(), "push", "--compression-format=zstd", "--compression-level=1"]
            cache.run([*push, _built(target), f"oci:{layout}:{name}"], f"Writing the {target} image")
        self._share_blobs(layout)

    def _share_blobs(self, layout: Path) -> None:
        """Have the layers that the build before this one has as well on the disk once."""
        before = cache.newest("images")
        if before is None:
            return
        for blob in (layout / "blobs" / "sha256").iterdir():
            same = before / blob.relative_to(self.folder)
            if same.exists():
                blob.unlink()
                blob.hardlink_to(same)

    def _build_command(self, target: str, base: str) -> list[str]:
        mounts = {ensure_jars(report=self.report): "/mnt/jars:ro", **_pip_mounts(self.folder)}
        command = [*_buildah(), "build", "--isolation=chroot", "--layers", "--format=oci", f"--target={target}"]
        command += [f"--build-arg=BASE={base}", f"--tag={_built(target)}"]
        command += [f"--volume={source}:{inside}" for source, inside in mounts.items() if source.exists()]
        return [*command, *(["--build-arg=EXACTLYONCE_JARS=/mnt/jars"] if target == "spark" else [])]

    def _steps(self, target: str) -> cache.Report:
        """Report the steps of the Dockerfile, not what each prints."""

        def line(printed: str) -> None:
            if "STEP " in printed:
                self.report(f"{target} image: {printed.strip()}")

        return line


def _built(target: str) -> str:
    return f"localhost/exactlyonce-{target}:built"


def _base_image(report: cache.Report) -> str:
    """Return the name of a plain Debian in buildah's store, making it if it is not there."""
    options = [f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT]
    key = cache.key_of([], DEBIAN, *options)
    name = _name("base", key)

    def make(folder: Path) -> None:
        report(f"A plain Debian ({DEBIAN}) by mmdebstrap")
        command = ["mmdebstrap", "--variant=minbase", *options, DEBIAN, str(folder / "base.tar")]
        cache.run(command, "Making a Debian base by mmdebstrap")

    archive = cache.made_once("debian", key, make) / "base.tar"
    if subprocess.run([*_buildah(), "inspect", "--type=image", name], check=False, capture_output=True).returncode:
        container = "exactlyonce-base"
        subprocess.run([*_buildah(), "rm", container], check=False, capture_output=True)
        for words in (
            ["from", f"--name={container}", "scratch"],
            ["add", container, str(archive), "/"],
            ["commit", "--rm", container, name],
        ):
            cache.run([*_buildah(), *words], "Taking the Debian base into buildah's store")
    return name


# buildah mounts; in a namespace of its own, with its notes about mounts in memory, nothing stays when it has ended.
_ALONE = 'mount -t tmpfs tmpfs "$0" && exec buildah --runroot "$0" "$@"'


def _buildah() -> list[str]:
    """Return the beginning of every buildah command."""
    home = cache_folder() / "testbed" / "buildah"
    for folder in ("store", "run"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    driver = "vfs" if _on_overlay(home) else "overlay"
    options = [f"--root={home / 'store'}", f"--storage-driver={driver}"]
    return ["unshare", "--mount", "--", "sh", "-c", _ALONE, str(home / "run"), *options]


def _bound_store() -> None:
    """Start over when layers of old builds have piled up."""
    store = cache_folder() / "testbed" / "buildah" / "store"
    if not store.exists():
        return
    command = ["du", "--summarize", "--block-size=1M", str(store)]
    used = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if int(used.split()[0]) > _MOST_STORED_MEGABYTES:
        shutil.rmtree(store)


def _on_overlay(path: Path) -> bool:
    """An overlay's upper layer cannot be on another overlay: there buildah has to copy."""
    kind = subprocess.run(["stat", "-f", "-c", "%t", str(path)], check=True, capture_output=True, text=True).stdout
    return int(kind, 16) == _OVERLAYFS


def _pip_mounts(scratch: Path) -> dict[Path, str]:
    """What the pip in the image shares with the one here: its cache, how it reaches its index, and whom it trusts."""
    downloads = cache_folder() / "testbed" / "pip"
    downloads.mkdir(parents=True, exist_ok=True)
    configuration = scratch / "pip.conf"
    configuration.write_text("\n".join(_pip_configuration()))
    return {
        downloads: "/root/.cache/pip",
        configuration: "/etc/pip.conf:ro",
        _CERTIFICATES: "/mnt/certificates.crt:ro",
    }


def _pip_configuration() -> Iterator[str]:
    yield "[global]"
    if _CERTIFICATES.exists():
        yield "cert = /mnt/certificates.crt"
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=False, capture_output=True, text=True
    )
    for line in listed.stdout.splitlines():
        setting, _, value = line.partition("=")
        name = setting.rpartition(".")[2]
        if name in ("index-url", "extra-index-url", "trusted-host", "proxy"):
            yield f"{name} = {value.strip(chr(39))}"
