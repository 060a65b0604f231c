"""Images of another commit, made in a second: the images of this tree with one more layer, which replaces the code.

Only where both trees have the same Dockerfile, packages and jars: then nothing else in the images differs. The archive of Java
classes is the one of this tree; it holds classes of the jars alone.

Source: the OCI image specification, "Image Layer Filesystem Changeset" (an opaque whiteout hides what lies below a folder).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.image_layout import ImageLayout

HOME = "opt/exactlyonce"
"""The folder of the images in which all of our code is."""

_LAYER_KIND = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True)
class Copy:
    """A copy of an image with the code of another tree."""

    of: str
    name: str
    folders: tuple[str, ...]
    """The folders of the tree that the Dockerfile copies to HOME."""


def write_copies(layout: ImageLayout, copies: tuple[Copy, ...], root: Path, folder: Path) -> None:
    """Write a layout of copies into `folder`, on the same disk as `layout`, whose blobs are linked; the tree is at `root`."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for blob in layout.blobs.iterdir():
        (blobs / blob.name).hardlink_to(blob)
    entries = [_copied(layout, copy, _layer(root, copy.folders), blobs) for copy in copies]
    (folder / "index.json").write_text(json.dumps({**layout.index(), "manifests": entries}))
    (folder / "oci-layout").write_bytes((layout.folder / "oci-layout").read_bytes())


def _copied(layout: ImageLayout, copy: Copy, layer: bytes, blobs: Path) -> Any:
    """Write the layer, the configuration and the manifest of a copy; return its entry in the index."""
    entry = layout.entry(copy.of)
    manifest = layout.blob(entry)
    configuration = layout.blob(manifest["config"])
    configuration["rootfs"]["diff_ids"].append(f"sha256:{hashlib.sha256(layer).hexdigest()}")
    configuration["history"].append({"created_by": "the code of another commit"})
    manifest["layers"].append({"mediaType": _LAYER_KIND, **_written(gzip.compress(layer, 1, mtime=0), blobs)})
    manifest["config"].update(_written(json.dumps(configuration).encode(), blobs))
    return {**entry, **_written(json.dumps(manifest).encode(), blobs), "annotations": layout.named(copy.name)}


def _written(content: bytes, blobs: Path) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


def _layer(root: Path, folders: tuple[str, ...]) -> bytes:
    """Return an archive that replaces everything in HOME by the Python files of these folders."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        archive.addfile(_folder(HOME))
        archive.addfile(tarfile.TarInfo(f"{HOME}/.wh..wh..opq"))
        for folder in folders:
            for path in sorted((root / folder).rglob("*")):
                if "__pycache__" not in path.parts:
                    archive.add(path, f"{HOME}/{path.relative_to((root / folder).parent)}", False, filter=_of_root)
    return written.getvalue()


def _folder(name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    return entry


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry
