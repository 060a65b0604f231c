"""An image of another commit's code is the image of this tree with one layer more."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from testbed.code_layer import HOME, Copy, write_copies
from testbed.image_layout import ImageLayout
from testbed.images import CODE, NOT_CODE, ROOT

NAME = "localhost/spark:new"
COPY = Copy(NAME, "localhost/spark:old", ("operator/exactlyonce",))


def archive(**files: str) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("__", "/") + ".py")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content.encode()))
    return written.getvalue()


def put(blobs: Path, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


def layout(folder: Path) -> ImageLayout:
    """Write an image of one layer, with a module that the other commit does not have."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layer = archive(
        opt__exactlyonce__exactlyonce__same="new", opt__exactlyonce__exactlyonce__added="new", etc__kept="x"
    )
    config = {
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{}],
    }
    manifest = {
        "config": {"mediaType": "config", **put(blobs, json.dumps(config).encode())},
        "layers": [{"mediaType": "layer", **put(blobs, gzip.compress(layer))}],
    }
    entry = {"mediaType": "manifest", **put(blobs, json.dumps(manifest).encode())}
    entry["annotations"] = {"org.opencontainers.image.ref.name": NAME}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return ImageLayout(folder)


def tree(root: Path) -> Path:
    package = root / "operator" / "exactlyonce"
    (package / "__pycache__").mkdir(parents=True)
    (package / "same.py").write_text("old")
    (package / "__pycache__" / "same.pyc").write_text("compiled")
    return root


def files_of(layout: ImageLayout) -> dict[str, str]:
    """Return what a container sees, by the specification's rules; each blob has the hash that it is named by."""
    (entry,) = layout.index()["manifests"]
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": COPY.name}
    found: dict[str, str] = {}
    manifest = json.loads(content(layout, entry))
    config = json.loads(content(layout, manifest["config"]))
    for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        unpacked = gzip.decompress(content(layout, layer))
        assert diff_id == f"sha256:{hashlib.sha256(unpacked).hexdigest()}"
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as tar:
            for hidden in [name for name in tar.getnames() if name.endswith("/.wh..wh..opq")]:
                found = {
                    name: was for name, was in found.items() if not name.startswith(str(Path(hidden).parent) + "/")
                }
            for member in tar:
                file = tar.extractfile(member) if not member.name.endswith(".wh..wh..opq") else None
                found |= {member.name: file.read().decode()} if file else {}
    return found


def content(layout: ImageLayout, descriptor: Any) -> bytes:
    found: bytes = (layout.blobs / descriptor["digest"].removeprefix("sha256:")).read_bytes()
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(found).hexdigest()}"
    assert descriptor["size"] == len(found)
    return found


def test_a_copy_has_the_code_of_the_other_tree_and_nothing_of_this_ones(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    write_copies(layout(tmp_path / "made"), (COPY,), tree(tmp_path / "tree"), tmp_path / "copy")
    assert files_of(ImageLayout(tmp_path / "copy")) == {
        "etc/kept.py": "x",
        "opt/exactlyonce/exactlyonce/same.py": "old",
    }


@pytest.mark.parametrize("target", ["operator", "spark"])
def test_whatever_the_dockerfile_copies_is_replaced_by_the_layer_or_the_same_in_both_trees(target: str) -> None:
    (stage,) = [
        text for text in (ROOT / "Dockerfile").read_text().split("\nFROM ") if text.startswith(f"python AS {target}\n")
    ]
    copies = [line.split()[1:] for line in stage.splitlines() if line.startswith(("COPY ", "ADD "))]
    replaced = [source for *sources, to in copies if to.startswith(f"/{HOME}/") for source in sources]
    others = {source for *sources, to in copies if not to.startswith(f"/{HOME}/") for source in sources}
    assert replaced == list(CODE[target])
    assert others
    assert others <= set(NOT_CODE)


def test_the_layout_that_is_copied_stays_as_it_is(tmp_path: Path) -> None:
    made = layout(tmp_path / "made")
    before = {path: path.read_bytes() for path in made.folder.rglob("*") if path.is_file()}
    (tmp_path / "copy").mkdir()
    write_copies(made, (COPY,), tree(tmp_path / "tree"), tmp_path / "copy")
    assert {path: path.read_bytes() for path in made.folder.rglob("*") if path.is_file()} == before
