"""An OCI layout on disk, as buildah pushes it: which blobs an image has, and an archive of those that somebody lacks.

Source: the OCI image specification, "Image Layout" and "Image Manifest".
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REFERENCE = "org.opencontainers.image.ref.name"
_CONTAINERD_NAME = "io.containerd.image.name"
_MARKER = {"imageLayoutVersion": "1.0.0"}


@dataclass(frozen=True)
class ImageLayout:
    """A folder with `index.json` and blobs named by their SHA-256."""

    folder: Path

    def write_archive(self, file: Path, present: AbstractSet[str] = frozenset()) -> None:
        """Write all images into an archive for `ctr images import`, without the blobs whose SHA-256 is in `present`."""
        index = self.index()
        digests = dict.fromkeys(digest for entry in index["manifests"] for digest in self._digests_of(entry))
        for entry in index["manifests"]:
            entry["annotations"][_CONTAINERD_NAME] = entry["annotations"][_REFERENCE]
        with tarfile.open(file, "w") as archive:
            _add(archive, "oci-layout", _MARKER)
            _add(archive, "index.json", index)
            for digest in digests:
                if digest not in present:
                    archive.add(self.blobs / digest, f"blobs/sha256/{digest}")

    @property
    def blobs(self) -> Path:
        """The folder of the blobs."""
        return self.folder / "blobs" / "sha256"

    def index(self) -> Any:
        """Return what `index.json` says."""
        return json.loads((self.folder / "index.json").read_text())

    def entry(self, name: str) -> Any:
        """Return the entry of the index for the image of this name."""
        (found,) = (entry for entry in self.index()["manifests"] if entry["annotations"][_REFERENCE] == name)
        return found

    def blob(self, descriptor: Any) -> Any:
        """Return the document that a descriptor names: a manifest or a configuration."""
        return json.loads((self.blobs / descriptor["digest"].removeprefix("sha256:")).read_text())

    def named(self, name: str) -> dict[str, str]:
        """Return the annotations that give an image this name."""
        return {_REFERENCE: name}

    def _digests_of(self, entry: Any) -> Iterator[str]:
        """The digests of a manifest, its configuration and its layers, without the algorithm."""
        yield entry["digest"].removeprefix("sha256:")
        manifest = self.blob(entry)
        for part in [manifest["config"], *manifest["layers"]]:
            yield part["digest"].removeprefix("sha256:")


def _add(archive: tarfile.TarFile, name: str, value: Any) -> None:
    content = json.dumps(value).encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
