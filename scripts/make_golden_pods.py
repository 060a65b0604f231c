"""Regenerate the golden manifests under tests/golden/driver_pods/: what attempt 17 of each stream there consists of.

    python scripts/make_golden_pods.py

Look at the difference before it is committed: it is what every driver is made of from then on.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from exactlyonce.api.resource import Stream, read_streams
from exactlyonce.launch.driver_document import Image
from exactlyonce.launch.driver_pod import manifests_of
from exactlyonce.launch.pod_settings import PodDefaults, resolve
from exactlyonce.launch.port import Orders
from exactlyonce.ledger.rows import Owner
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.in_pod import Brief
from exactlyonce.reconcile.observation import ProvenDead

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "driver_pods"
INPUT = ".stream.yaml"
ATTEMPT = Epoch(17)
OWNER_UID = "6d2b6f0e-0b1e-4c55-9d6b-5c1a6b3c7a11"
DEFAULTS = PodDefaults("exactlyonce-driver", Image("exactlyonce-spark:0.1.0", "IfNotPresent", ("operators-registry",)))


def cases() -> list[str]:
    """Return the names of the streams."""
    return sorted(file.name.removesuffix(INPUT) for file in GOLDEN.glob(f"*{INPUT}"))


def made(case: str) -> str:
    """Return what the attempt consists of, as a file of manifests."""
    (stream,) = read_streams(GOLDEN / f"{case}{INPUT}")
    manifests = manifests_of(resolve(stream, ATTEMPT, OWNER_UID, DEFAULTS, Orders("ticket-17", _brief(stream))))
    text = yaml.dump_all(manifests.all(), Dumper=_Readable, sort_keys=False, width=120, explicit_start=True)
    return f"# Made by scripts/make_golden_pods.py from {case}{INPUT}.\n{text}"


def _brief(stream: Stream) -> str | None:
    """Return the brief of the reconciliation in the pod, where there is one."""
    if stream.spec.checkpoint.volume is None:
        return None
    owner = Owner("cluster-1", f"shop/orders/{OWNER_UID}")
    return Brief(
        stream, owner, None, ProvenDead("the driver of attempt 16 said that it has stopped"), "ticket-17"
    ).render()


class _Readable(yaml.SafeDumper):
    """Text of several lines as such, and nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Represent a text."""
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _Readable.represent_text)


def main() -> int:
    """Write every file."""
    for case in cases():
        (GOLDEN / f"{case}.yaml").write_text(made(case))
        print(f"{case}.yaml")
    return 0


if __name__ == "__main__":
    sys.exit(main())
