"""Broker loads: a task writes its rows into a file, and the driver has Doris read it once that is decided. No pyspark here.

Doris commits such a load by its statement alone. What keeps it from counting twice is in `two_phase_submit`; here is how Doris
is asked (docs/adr/0037).
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from exactlyonce.connectors.doris.broker_answers import Job, LoadCancelled, Loaded, NoJob, Runs
from exactlyonce.connectors.doris.staging import OF_A_LOAD, SEQUENCE_COLUMN, StagingLocation
from exactlyonce.errors import Refused, StoreUnreachable
from exactlyonce.ledger.decided import Committable, StagedFile
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.schema.places import S3_PREFIX
from exactlyonce_spark.connectors.doris.client import Body, DorisClient, DorisUnreachable
from exactlyonce_spark.connectors.doris.query_client import (
    QueryClient,
    StatementRefused,
    TooManyJobs,
    literal_properties,
)
from exactlyonce_spark.connectors.doris.staging_folder import StagingFolder
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.sql_text import quoted
from exactlyonce_spark.staged_loads import (
    Cancelled,
    End,
    Finished,
    NotTakenNow,
    Outcome,
    StagedLoads,
    SubmissionRefused,
    WaitingFile,
)
from exactlyonce_spark.target import PreparedLoad

_TYPE = ".json"
_LONGEST_PAUSE_SECONDS = 5.0
_MARGIN_SECONDS = 60.0
"""So much longer than a load may take is it waited for: a frontend cancels one that takes longer (`timeout`) by a timer."""


class FileElsewhere(Refused):
    """A decided load waits in a file that is not in the staging location as the stream has it now."""


class OtherColumns(Refused):
    """A decided load waits in a file with other columns than the query has now: Doris would make NULL of each that differs."""


@dataclass(frozen=True)
class StagingWriter:
    """What a task does: it writes rows into a file of their own, and Doris hears nothing of it."""

    folder: StagingFolder
    labels: LoadLabels
    tries: int
    pause: Callable[[float], None] = time.sleep

    def prepare(
        self, epoch: Epoch, batch: BatchNumber, part: str, columns: Sequence[str], body: Body, rows: int
    ) -> PreparedLoad:
        """Write so many rows; each try has a name of its own, since a request without an answer may be carried out later.

        The name also tells which columns they have: the file may be read by a driver whose query has others.

        Raises:
            StoreUnreachable: if no try succeeded: files may be left, which nobody decides and the next driver removes.
        """
        label = self.labels.label(epoch, batch, part)
        for number in range(self.tries):
            path = f"{folder_of(self.labels)}/{epoch}.{batch}.{part}.{_digest(columns)}.{secrets.randbits(31):x}{_TYPE}"
            try:
                self.folder.put(path, body())
            except StoreUnreachable:
                if number == self.tries - 1:
                    raise
                self.pause(float(2 << number))
            else:
                staged = StagedFile(f"{self.folder.location}/{path}", self.folder.service)
                return PreparedLoad(label, "", rows, staged=staged)
        raise AssertionError("the last try returns or raises")


@dataclass(frozen=True)
class DorisStagedLoads(StagedLoads):
    """The broker loads of a driver's epoch. `reader` has the keys of the login that stands in statements.

    `client` asks by HTTP whether this login may load; `columns` are those of the files, in their order.
    """

    query: QueryClient
    client: DorisClient
    folder: StagingFolder
    staging: StagingLocation
    reader: Mapping[str, str] = field(repr=False)
    columns: Sequence[str]
    labels: LoadLabels
    epoch: Epoch
    pause: Callable[[float], None] = time.sleep

    def now_milliseconds(self) -> int:
        """Return the frontend's clock."""
        return self.query.now_milliseconds()

    def submit(self, committable: Committable) -> None:
        """Send the statement of a load.

        That the label is in use is no refusal: a frontend that hears nothing from the master sends it a statement again.
        """
        statement, values = self._statement(committable)
        try:
            self.query.submit(statement, values)
        except StatementRefused as problem:
            raise SubmissionRefused(
                f"Doris does not take the broker load {committable.label} of the decided batch: {problem}. Nothing of it is "
                "loaded; the next driver submits it again."
            ) from None
        except TooManyJobs as problem:
            raise NotTakenNow(
                f"Doris does not take the broker load {committable.label} of the decided batch now: {problem}. The next driver "
                "submits it again; a higher desired_max_waiting_jobs of the frontends lets more loads wait."
            ) from None

    def outcome_of(self, committable: Committable) -> Outcome:
        """Ask for the jobs of a label until they have ended."""
        waited, seconds = 0.0, 0.1
        while True:
            job = self._job(committable.label)
            match job:
                case Loaded(rows):
                    return Finished(rows)
                case LoadCancelled(reason, is_refused):
                    return Cancelled(reason, is_refused)
                case NoJob.NONE:
                    return End.NOT_FOUND
                case NoJob.TRANSACTION_UNKNOWN:
                    return End.IN_DOUBT
                case Runs(state):
                    if waited > self.client.load_seconds + _MARGIN_SECONDS:
                        raise DorisUnreachable(
                            f"The broker load {committable.label} is {state.value} after {waited:.0f} seconds; the next driver "
                            "asks again."
                        )
                case _:
                    assert_never(job)
            self.pause(seconds)
            waited, seconds = waited + seconds, min(2 * seconds, _LONGEST_PAUSE_SECONDS)

    def is_there(self, committable: Committable) -> bool:
        """Whether the file of a load is in the folder."""
        assert committable.staged is not None, "it waits in a file"
        return self.folder.holds(self._path(committable.staged))

    def remove(self, file: StagedFile) -> None:
        """Remove a file."""
        self.folder.remove(self._path(file))

    def another_label(self, batch: BatchNumber) -> str:
        """Return a label that no load ever had."""
        return self.labels.label(self.epoch, batch, f"another-{secrets.randbits(63):x}")

    def waiting(self) -> Iterable[WaitingFile]:
        """List the files of this stream's life, whose names say which epoch wrote them."""
        return tuple(self._waiting())

    def _waiting(self) -> Iterator[WaitingFile]:
        for path in self.folder.paths_below(folder_of(self.labels)):
            epoch = path.rpartition("/")[2].partition(".")[0]
            if path.endswith(_TYPE) and epoch.isascii() and epoch.isdigit() and len(epoch) <= 19:
                yield WaitingFile(StagedFile(f"{self.folder.location}/{path}", self.folder.service), Epoch(int(epoch)))

    def _job(self, label: str) -> Job:
        """Return what Doris says of a label. It hides jobs from who may not load, so that is asked before none is believed.

        Source: fe/fe-core/…/load/loadv2/LoadManager.java, getLoadJobInfosByDb.
        """
        job = self.query.job(label)
        if job is not NoJob.NONE:
            return job
        self.client.require_right_to_load()
        job = self.query.job(label)
        self.client.require_right_to_load()
        return job

    def _path(self, file: StagedFile) -> str:
        """Return the path of a file in the folder.

        Raises:
            FileElsewhere: if it is in another one, or at another service: it would not be removed.
        """
        if not file.name.startswith(f"{self.folder.location}/"):
            raise FileElsewhere(
                f"A decided load waits in {file.name}, which is not below sink.doris.stagingLocation ({self.folder.location}): "
                "name the former location again until the batch has landed."
            )
        if file.service != self.folder.service:
            raise FileElsewhere(
                f"A decided load waits in {file.name} at {file.service}, and sink.doris.stagingLocation.endpoint names "
                f"{self.folder.service}: name the former endpoint again until the batch has landed."
            )
        return file.name.removeprefix(f"{self.folder.location}/")

    def _statement(self, committable: Committable) -> tuple[str, Sequence[str]]:
        """Return the statement of a load, with %s for each value. Rows are as strict as those of a stream load."""
        assert committable.staged is not None, "it waits in a file"
        path = self._path(committable.staged)
        if path.removesuffix(_TYPE).split(".")[-2] != _digest(self.columns):
            raise OtherColumns(
                f"The decided load {committable.label} waits in {committable.staged.name}, whose rows have other columns than "
                f"the query has now ({', '.join(self.columns)}): use the former transform until the batch has landed."
            )
        database, label, table = map(_named, (self.client.database, committable.label, self.client.table))
        columns = ", ".join(map(_named, self.columns))
        of_format, format_values = literal_properties(_FORMAT)
        of_storage, storage_values = literal_properties(self._storage())
        of_load, load_values = literal_properties(
            {
                **{name: self.client.properties[name] for name in OF_A_LOAD if name in self.client.properties},
                "timeout": str(int(self.client.load_seconds)),
                "strict_mode": "true",
                "max_filter_ratio": "0",
                "timezone": "+00:00",
            }
        )
        statement = (
            f"LOAD LABEL {database}.{label} (DATA INFILE (%s) INTO TABLE {table} FORMAT AS %s ({columns}) "
            f"{self._order()}PROPERTIES {of_format}) WITH S3 {of_storage} PROPERTIES {of_load}"
        )
        file = f"s3://{committable.staged.name.removeprefix(S3_PREFIX)}"
        return statement, (file, "json", *format_values, *storage_values, *load_values)

    def _order(self) -> str:
        """Return the clause that names the column by which Doris chooses among rows of one key.

        Source: docs/…/data-modification/load-and-export/BROKER-LOAD.md, `ORDER BY`; sequence-column-manual.md.
        """
        sequence = self.client.properties.get(SEQUENCE_COLUMN)
        return "" if sequence is None else f"ORDER BY {_named(sequence)} "

    def _storage(self) -> dict[str, str]:
        """Source: docs/data-operate/import/import-way/broker-load-manual.md of Doris, and its page on S3."""
        region = self.staging.region or "us-east-1"
        token = self.reader.get("AWS_SESSION_TOKEN", "").strip()
        return {
            "provider": "S3",
            "s3.endpoint": self.staging.endpoint or f"https://s3.{region}.amazonaws.com",
            "s3.region": region,
            "s3.access_key": self.reader["AWS_ACCESS_KEY_ID"].strip(),
            "s3.secret_key": self.reader["AWS_SECRET_ACCESS_KEY"].strip(),
            **({"s3.session_token": token} if token else {}),
            "use_path_style": "true" if self.staging.path_style else "false",
        }


_FORMAT = {"read_json_by_line": "true", "strip_outer_array": "false", "num_as_string": "true"}


def folder_of(labels: LoadLabels) -> str:
    """Return the folder of a stream's life; a name with colons is not one that each client of Doris' lists."""
    return labels.prefix.rstrip(":").replace(":", ".")


def _digest(columns: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:16]


def _named(name: str) -> str:
    """Return a name between backticks, in a statement whose values stand as %s."""
    return quoted(name).replace("%", "%%")
