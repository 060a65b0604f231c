"""Secrets as files, as Kubernetes mounts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactlyonce.errors import SecretMissing
from exactlyonce.launch.secrets import read_secret
from exactlyonce.schema.model import SecretRef

WAREHOUSE = SecretRef(name="warehouse")


def mounted(folder: Path, keys: dict[str, bytes]) -> Path:
    """Lay a secret out as the kubelet does: keys are links through `..data` into a folder named by the moment."""
    secret = folder / "warehouse"
    moment = secret / f"..2026_01_01_00_00_0{len(list(secret.glob('..2*')))}.1"
    moment.mkdir(parents=True)
    for key, value in keys.items():
        (moment / key).write_bytes(value)
        if not (secret / key).is_symlink():
            (secret / key).symlink_to(Path("..data") / key)
    (secret / "..new").symlink_to(moment.name)
    (secret / "..new").rename(secret / "..data")
    return folder


def test_a_mounted_secret_is_its_keys_and_nothing_of_the_mounts_own(tmp_path: Path) -> None:
    mounted(tmp_path, {"host": b"db", "password": "pä ss\n".encode()})
    (tmp_path / "warehouse" / ".password.swp").write_text("an editor's")
    assert read_secret(tmp_path, WAREHOUSE) == {"host": "db", "password": "pä ss\n"}


def test_a_rotated_secret_is_picked_up(tmp_path: Path) -> None:
    mounted(tmp_path, {"password": b"old"})
    read_secret(tmp_path, WAREHOUSE)
    mounted(tmp_path, {"password": b"new"})
    assert read_secret(tmp_path, WAREHOUSE) == {"password": "new"}


def test_no_secret_has_no_keys(tmp_path: Path) -> None:
    assert read_secret(tmp_path, None) == {}


def test_a_key_that_is_no_text_is_left_out_because_no_login_is_one(tmp_path: Path) -> None:
    """Strimzi, for one, writes `user.p12` beside `user.crt`."""
    mounted(tmp_path, {"password": b"open", "user.p12": b"\x30\x82\xff\xfe"})
    assert read_secret(tmp_path, WAREHOUSE) == {"password": "open"}


def test_a_secret_that_is_not_there_is_one_sentence_with_what_to_make(tmp_path: Path) -> None:
    with pytest.raises(SecretMissing) as missing:
        read_secret(tmp_path, WAREHOUSE)
    folder = tmp_path / "warehouse"
    assert str(missing.value) == (
        f"Secret warehouse is not there: make the folder {folder} with one file for each key, such as {folder / 'password'}."
    )


def test_a_secret_that_may_not_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "warehouse" / "password").symlink_to("/proc/self/mem")  # reading it fails for root too
    with pytest.raises(SecretMissing) as refused:
        read_secret(tmp_path, WAREHOUSE)
    assert str(refused.value) == (
        f"Secret warehouse cannot be read (Input/output error): let this user read the files in {tmp_path / 'warehouse'}."
    )
