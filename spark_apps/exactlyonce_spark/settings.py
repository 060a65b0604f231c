"""What a driver is started with: the stream's resolved spec and how Spark runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exactlyonce.api.spec import StreamSpec


@dataclass(frozen=True)
class DriverSpec:
    """The resolved spec of one stream, as the launcher writes it and the driver reads it."""

    stream_id: str
    spec: StreamSpec
    master: str
    spark_conf: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> DriverSpec:
        """Read the JSON document that the launcher wrote."""
        document = json.loads(path.read_text())
        return cls(
            document["streamId"],
            StreamSpec.model_validate(document["spec"]),
            document["master"],
            document["sparkConf"],
        )
