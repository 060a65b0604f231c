"""Whose a stream is, as the ledger has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exactlyonce.control.cluster import Cluster
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import Refused
from exactlyonce.ledger.rows import Owner


def owner_of(cluster: Cluster, document: Mapping[str, Any]) -> Owner:
    """Return the owner as the ledger knows it: the cluster, and the resource's namespace, name and uid."""
    metadata = document["metadata"]
    return Owner(cluster.cluster_id, "/".join([metadata["namespace"], metadata["name"], metadata["uid"]]))


def owner_is_gone(cluster: Cluster, owner: Owner) -> bool:
    """Return whether an owner was a resource of this cluster that no longer exists; of other clusters nothing is known.

    A resource cannot be renamed or moved, so it is gone when its name has none or another uid.
    """
    namespace, _, rest = owner.uid.partition("/")
    name, _, uid = rest.partition("/")
    if owner.cluster != cluster.cluster_id or not uid:
        return False
    try:
        found = cluster.stream(Key(namespace, name))
    except Refused:  # the operator may not look there
        return False
    return found is None or found["metadata"]["uid"] != uid
