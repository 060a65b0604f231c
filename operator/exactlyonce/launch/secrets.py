"""Secrets as files: `<folder>/<secret>/<key>`, as Kubernetes mounts them."""

from __future__ import annotations

from pathlib import Path

from exactlyonce.api.model import SecretRef
from exactlyonce.errors import SecretMissing

SECRETS_FOLDER = "EXACTLYONCE_SECRETS"
"""The environment variable that tells a driver and its tasks where the folder is."""


def read_secret(folder: Path, reference: SecretRef | None) -> dict[str, str]:
    """Return a secret's keys, read at each call, so that a rotated one is picked up.

    Raises:
        SecretMissing: if it is not there.
    """
    if reference is None:
        return {}
    mounted = folder / reference.name
    if not mounted.is_dir():
        raise SecretMissing(
            f"Secret {reference.name} is not there: make the folder {mounted} with one file for each key, such as "
            f"{mounted / 'password'}."
        )
    # Kubernetes mounts keys as links beside hidden folders of its own.
    return {file.name: file.read_text() for file in mounted.iterdir() if file.is_file() and file.name[0] != "."}
