"""Where large loads wait in files for Doris to read them, and from which size on; rules of `load: BrokerLoad` and `Auto`.

Performs no I/O.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from exactlyonce.connectors.doris.columns import columns_of
from exactlyonce.schema.constraints import Rule, cel_list, matches
from exactlyonce.schema.model import Model, SecretRef
from exactlyonce.schema.places import NO_DOTS, S3_PREFIX, S3_SECRET_KEYS, Endpoint, PathStyle, S3Place, S3Region

READER_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The keys read of the login with which Doris reads files; the last one may be missing."""

OF_A_LOAD = ("exec_mem_limit", "load_to_single_tablet", "send_batch_parallelism")
"""What of `sink.doris.properties` a broker load has, too.

Source: docs/data-operate/import/import-way/broker-load-manual.md of Doris, "Load Properties".
"""

SEQUENCE_COLUMN = "function_column.sequence_col"
"""A header of stream load, and a clause of a broker load."""

PROPERTIES = ("exec_mem_limit", SEQUENCE_COLUMN, "load_to_single_tablet", "send_batch_parallelism")

_UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}
# No character that Doris takes for a pattern, and none that an address would need in another form.
_LOCATION = rf"{S3_PREFIX}[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9](/[A-Za-z0-9_.=-]+)+"

LoadSize = Annotated[
    str,
    Field(max_length=12),
    matches("[1-9][0-9]{0,6}(Mi|Gi)", "write a size such as 512Mi or 1Gi"),
]


class Load(StrEnum):
    """By which kind of load rows go into the table."""

    STREAM_LOAD = "StreamLoad"
    BROKER_LOAD = "BrokerLoad"
    AUTO = "Auto"
    BULK_LOAD = "BulkLoad"
    """It is known, so that it can be refused by its reason."""

    @property
    def stages_files(self) -> bool:
        """Whether rows may wait in files."""
        return self in (Load.BROKER_LOAD, Load.AUTO)


class StagingLocation(Model):
    """A folder of a bucket in which rows wait until Doris reads them, and the two logins to it."""

    location: Annotated[
        str,
        Field(min_length=1, max_length=512),
        matches(_LOCATION, "write s3a://bucket/folder, with letters, digits and _.=- alone"),
        NO_DOTS,
    ] = Field(description="A folder: s3a://bucket/folder. Streams may share it, as each has its own folders in it.")
    endpoint: Endpoint | None = Field(
        None, description="The address of an S3 service other than Amazon's. Tasks, driver and Doris have to reach it."
    )
    region: S3Region = None
    path_style: PathStyle = False
    secret_ref: SecretRef = Field(
        description="The login of driver and tasks, which write, list and remove files; the keys read are "
        f"{', '.join(S3_SECRET_KEYS)}."
    )
    reader_secret_ref: SecretRef | None = Field(
        None,
        description="The login with which Doris reads the files. It stands in the statement of each load, and Doris keeps it "
        "as long as the load, so give it one that may read below the location and nothing else; the keys read are "
        f"{', '.join(READER_KEYS)}. The default is secretRef.",
    )

    rules = (
        Rule(
            "has(self.endpoint) || has(self.region)",
            lambda it: it.endpoint is not None or it.region is not None,
            "stagingLocation needs the region of a bucket of Amazon S3, or the endpoint of another service: Doris asks for it",
        ),
    )

    @property
    def place(self) -> S3Place:
        """The folder as drivers and tasks use it; its parts were checked where they were written."""
        return S3Place.model_construct(
            location=self.location.rstrip("/"),
            endpoint=self.endpoint,
            region=self.region,
            path_style=self.path_style,
            secret_ref=self.secret_ref,
        )

    @property
    def reader(self) -> SecretRef:
        """The secret with the login that stands in statements."""
        return self.reader_secret_ref or self.secret_ref


def bytes_of(size: str) -> int:
    """Return how many bytes a `LoadSize` is."""
    found = re.fullmatch("([0-9]+)(Mi|Gi)", size)
    assert found is not None, "the field's rule asks for it"
    return int(found[1]) * _UNITS[found[2]]


def _stages(it: Any) -> bool:
    return bool(it.load.stages_files)


_NOT_STAGED = "!(self.load in ['BrokerLoad', 'Auto'])"

RULES = (
    Rule(
        f"{_NOT_STAGED} || has(self.stagingLocation)",
        lambda it: not _stages(it) or it.staging_location is not None,
        "load: BrokerLoad and Auto need stagingLocation, where rows wait until Doris reads them",
    ),
    Rule(
        f"{_NOT_STAGED} || self.labelFormat == 'Default'",
        lambda it: not _stages(it) or it.label_format == "Default",
        "load: BrokerLoad and Auto need labelFormat: Default, since a broker load commits by its label, which no other load "
        "may have",
    ),
    Rule(
        f"{_NOT_STAGED} || !has(self.columns) || !self.columns.exists(column, column.contains('='))",
        lambda it: not _stages(it) or not columns_of(it.columns).computed,
        "load: BrokerLoad and Auto take no name=expression in columns: compute the column in the transform, or use StreamLoad",
    ),
    Rule(
        f"{_NOT_STAGED} || !has(self.properties) || self.properties.all(name, name in {cel_list(PROPERTIES)})",
        lambda it: not _stages(it) or all(name in PROPERTIES for name in it.properties),
        f"load: BrokerLoad and Auto take no other properties than {', '.join(PROPERTIES)}",
    ),
    Rule(
        "!has(self.brokerLoadAbove) || self.load == 'Auto'",
        lambda it: it.broker_load_above is None or it.load is Load.AUTO,
        "brokerLoadAbove belongs to load: Auto, which chooses by size",
    ),
)
"""Rules of a sink that may load from files."""
