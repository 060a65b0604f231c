"""Generations with state as Spark 4.2.0 lays it out, for tests without Spark; what a batch adds is read from its number.

Proven to be Spark's layout by tests/integration/test_retained_state.py, which continues from real ones.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from exactlyonce.positions.ranges import Partition, Positions
from tests.simulation.files import MemoryStore

PARTITIONS = 2


@dataclass(frozen=True)
class StateFolder:
    """One generation in memory: a query with one operator, whose stores are named."""

    folder: str
    kind: str
    stores: tuple[str, ...] = ("default",)
    store: MemoryStore = field(default_factory=MemoryStore)

    @property
    def with_ids(self) -> bool:
        """Whether state files have unique names."""
        return self.kind.endswith("with ids")

    def batches(self, last: int) -> MemoryStore:
        """Write batches 0 to `last`, all of them committed, and return the store."""
        self.write("metadata", b'{"id":"a-query"}')
        self.write("sources/0/0", b'\0v1\n{"orders":{"0":0}}')
        shapes = [{"storeName": name, "numColsPrefixKey": 0, "numPartitions": PARTITIONS} for name in self.stores]
        operator = {"operatorInfo": {"operatorId": 0, "operatorName": "x"}, "stateStoreInfo": shapes}
        self.write("state/0/_metadata/metadata", b"v1\n" + json.dumps(operator).encode())
        self.write("state/0/0/_metadata/schema", b"the schema")
        for batch in range(last + 1):
            self._batch(batch)
        return self.store

    def write(self, path: str, content: bytes) -> None:
        """Write a file with the hidden checksums that Hadoop keeps beside it."""
        head, _, name = path.rpartition("/")
        self.store.files[f"{self.folder}/{path}"] = content
        self.store.files[f"{self.folder}/{head}/.{name}.crc".replace("//", "/")] = b"crc\0"

    def remove(self, path: str) -> None:
        """Remove one file."""
        del self.store.files[f"{self.folder}/{path}"]

    def _batch(self, batch: int) -> None:
        end = Positions({Partition("orders", 0): 10 * batch})
        self.write(f"offsets/{batch}", b'v1\n{"conf":{}}\n' + end.to_json().encode())
        ids: dict[str, list[list[str]]] = {"0": []}
        for partition in range(PARTITIONS):
            ids["0"].append([self._version(batch + 1, partition, name) for name in self.stores])
        commit = {"nextBatchWatermarkMs": 0, **({"stateUniqueIds": ids} if self.with_ids else {})}
        self.write(f"commits/{batch}", (b"v2\n" if self.with_ids else b"v1\n") + json.dumps(commit).encode())

    def _version(self, version: int, partition: int, name: str) -> str:
        """Write what a task writes for one version of a store, and return its unique id."""
        unique = f"id-{version}-{partition}-{name}"
        folder = f"state/0/{partition}" if name == "default" else f"state/0/{partition}/{name}"
        if self.kind == "in memory":
            self.write(f"{folder}/{version}.{'snapshot' if version == 3 else 'delta'}", f"{version}".encode())
            if version == 3:
                self.write(f"{folder}/{version}.delta", b"3")
            return unique
        suffix = f"_{unique}" if self.with_ids else ""
        if self.kind.startswith("changelogs") and version != 3:
            self.write(f"{folder}/{version}{suffix}.changelog", f"{version}".encode())
            return unique
        table = f"{version:06}-{unique}.sst"
        self.write(f"{folder}/SSTs/{table}", b"rows" * version)
        self.write(f"{folder}/{version}{suffix}.zip", snapshot({f"SSTs/{table}": 4 * version}))
        if self.with_ids:
            self.write(f"{folder}/{version}{suffix}.zip.crc", b'{"algorithm":"CRC32C"}')
        return unique


def snapshot(tables: Mapping[str, int]) -> bytes:
    """Return a zip as RocksDB's snapshots are, which names the tables that it shares, by path and size."""
    entries = [
        {"localFileName": "1.sst", "dfsSstFileName": path.removeprefix("SSTs/"), "sizeBytes": size}
        for path, size in tables.items()
    ]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(zipfile.ZipInfo("metadata"), "v1\n" + json.dumps({"sstFiles": entries, "numKeys": 1}))
        archive.writestr(zipfile.ZipInfo("CURRENT"), "MANIFEST-000005\n")
    return content.getvalue()
