"""What a driver is started with: the stream's resolved spec and how Spark runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.api.spec import StreamSpec
from exactlyonce.errors import Refused
from exactlyonce.launch.driver_document import DriverDocument, KubernetesPlace
from exactlyonce.launch.port import Quarantine, ShrunkLimit


class DocumentUnreadable(Refused):
    """The document that a driver is to read is not one that it understands."""


@dataclass(frozen=True)
class DriverSpec:
    """The resolved spec of one stream, as the launcher writes it and the driver reads it.

    `kubernetes` is there for a driver in a pod. `ticket` is what the driver claims its epoch with, empty in a process that
    claims none; `checkpoint_path` is the checkpoint that the ledger has to name then. `limit` is there while a batch was too
    large, `quarantine` until a batch that failed too often was passed over. `task` is what the driver does; `writer_is_dead` is
    there for one that only finishes.
    """

    stream_id: str
    spec: StreamSpec
    master: str
    spark_conf: Mapping[str, str]
    kubernetes: KubernetesPlace | None = None
    ticket: str = ""
    limit: ShrunkLimit | None = None
    quarantine: Quarantine | None = None
    checkpoint_path: str | None = None
    task: DriverTask = DriverTask.RUN_QUERY
    writer_is_dead: bool = False

    @classmethod
    def read(cls, path: Path) -> DriverSpec:
        """Read the JSON document that the launcher wrote.

        Raises:
            DocumentUnreadable: if it is not there, or is of another release.
        """
        try:
            document = DriverDocument.parse(path.read_text())
            spec = StreamSpec.model_validate(document.spec)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            said = " ".join(str(problem).split())
            raise DocumentUnreadable(
                f"The driver does not understand {path.name} ({type(problem).__name__}: {said[:300]}); "
                "give driver and operator images of the same release."
            ) from problem
        return cls(
            document.stream_id,
            spec,
            document.master,
            document.spark_conf,
            document.kubernetes,
            document.ticket,
            document.limit,
            document.quarantine,
            document.checkpoint_path,
            document.task,
            document.writer_is_dead,
        )
