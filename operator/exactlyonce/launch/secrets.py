"""Secrets as files: `<folder>/<secret>/<key>`, as Kubernetes mounts them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from exactlyonce.errors import SecretMissing

if TYPE_CHECKING:
    from exactlyonce.schema.model import SecretRef  # an executor's start does without it

SECRETS_FOLDER = "EXACTLYONCE_SECRETS"
"""The environment variable that tells a driver and its tasks where the folder is."""


def read_secret(folder: Path, reference: SecretRef | None) -> dict[str, str]:
    """Return a secret's keys, read at each call, so that a rotated one is picked up; those that are not text are left out.

    Raises:
        SecretMissing: if it is not there or may not be read.
    """
    return {} if reference is None else read_mounted(folder, reference.name)


def read_mounted(folder: Path, name: str) -> dict[str, str]:
    """Return the keys of the secret of that name.

    Raises:
        SecretMissing: as `read_secret`.
    """
    mounted = folder / name
    if not mounted.is_dir():
        raise SecretMissing(
            f"Secret {name} is not there: make the folder {mounted} with one file for each key, such as "
            f"{mounted / 'password'}."
        )
    try:
        # Kubernetes mounts keys as links beside hidden folders of its own.
        keys = {file.name: file.read_bytes() for file in mounted.iterdir() if file.is_file() and file.name[0] != "."}
    except OSError as problem:
        raise SecretMissing(
            f"Secret {name} cannot be read ({problem.strerror}): let this user read the files in {mounted}."
        ) from problem
    # A secret may hold more than is read here, such as the key store user.p12 beside user.crt.
    return {name: content.decode() for name, content in keys.items() if is_text(content)}


def is_text(content: bytes) -> bool:
    """Whether a key's content is UTF-8; a secret may hold more than is read here, such as a key store."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
