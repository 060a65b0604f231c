"""A real stream that reads a folder for a test: files of JSON lines on a disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from testbed.postgres import Postgres
from tests.rig import Rig


class FolderRig(Rig):
    """A stream over a folder, three files a batch."""

    def __init__(self, server: Postgres, folder: Path, name: str, **overrides: Any) -> None:
        self.incoming = folder / "incoming"
        self.files = 0
        source = {
            "files": {"path": str(self.incoming), "minFileAge": "0s", "maxFilesPerTrigger": 3},
            "format": {"schema": "id BIGINT, customer STRING"},
        }
        super().__init__(_NoKafka(), server, folder, name, {"spec.source": source, **overrides})  # type: ignore[arg-type] # it is named in what the overrides replace

    def __post_init__(self) -> None:
        self.incoming.mkdir(parents=True)
        self.postgres.create_database(self.name)
        self.sql("create table orders (id bigint, customer text)")
        self.write_secret()

    def put(self, files: int, *, ids_each: int = 5, seconds: int | None = None) -> list[Path]:
        """Put files with new ids into the folder, each a second older than the next one; return them.

        `seconds` is the time of the first one, since 1970, where files are to come with an old time.
        """
        put = []
        for number in range(files):
            first = len(self.produced)
            ids = list(range(first, first + ids_each))
            path = self.incoming / f"{self.files:05}.json"
            lines = [json.dumps({"id": each, "customer": f"customer {each % 7}"}) for each in ids]
            half = self.incoming.with_name("half-written")
            half.write_text("\n".join([*lines, ""]))
            moment = (1_700_000_000 + self.files) if seconds is None else seconds + number
            os.utime(half, (moment, moment))
            half.replace(path)  # a stream that runs meanwhile finds it whole
            self.files += 1
            self.produced += ids
            put.append(path)
        return put


class _NoKafka:
    """Stands where a stream of Kafka has its brokers."""

    bootstrap_servers = "none:9092"

    def create_topic(self, *_: object) -> None:
        """Do nothing."""
