"""Images unpacked once, in the form that containerd keeps them in, so that a new cluster's nodes have them at once."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

from testbed import cache
from testbed.containerd import BLOBS, DATABASES, SNAPSHOTS, Containerd
from testbed.images import Images
from testbed.programs import ensure_programs
from testbed.sandbox import Sandbox


def ensure_store(images: Images, report: cache.Report = cache.silent) -> Path:
    """Return a folder with these images for `Cluster.store`; nobody may write there.

    Raises:
        NotMade: if containerd refuses an image.
    """
    version = subprocess.run(["containerd", "--version"], check=True, capture_output=True, text=True).stdout
    key = cache.key_of([], images.operator, images.spark, version)
    return cache.made_once("stores", key, lambda scratch: _unpack(scratch, images, report))


def _unpack(scratch: Path, images: Images, report: cache.Report) -> None:
    report("Unpacking the images as containerd keeps them")
    _start_from_the_last(scratch)
    archive = scratch / "images.tar"
    with Sandbox(scratch, ensure_programs() / "pause") as sandbox:
        containerd = Containerd(sandbox, "store", scratch, sandbox.pods)
        process = containerd.start()
        images.layout.write_archive(archive, containerd.digests())
        containerd.load(archive)
        names = containerd.ctr("images", "list", "--quiet").split()
        for old in set(names) - {images.operator, images.spark}:
            containerd.ctr("images", "remove", "--sync", old)
        process.stop(signal.SIGTERM)
    archive.unlink()


def _start_from_the_last(scratch: Path) -> None:
    """Have what the store before this one has, as links: only new layers are unpacked."""
    before = cache.newest("stores")
    if before is None:
        return
    for folder in (BLOBS, SNAPSHOTS):
        target = scratch / "containerd" / folder
        target.parent.mkdir(parents=True)
        subprocess.run(["cp", "--archive", "--link", str(before / "containerd" / folder), str(target)], check=True)
    for database in DATABASES:
        (scratch / "containerd" / database).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(before / "containerd" / database, scratch / "containerd" / database)
