"""Where things are kept: a folder of a bucket on S3, or a path; and how an S3 service is described."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field

from exactlyonce.schema.aws_login import LOGIN_KEYS
from exactlyonce.schema.constraints import Rule, matches
from exactlyonce.schema.model import Flag, Model, SecretRef

S3_SECRET_KEYS = (*LOGIN_KEYS, "ca.crt")
"""The keys read from the secret of a place on S3: a login, and the CA of its endpoint as PEM."""

S3_PREFIX = "s3a://"
TABLE_PREFIX = "dynamodb://"
"""How a DynamoDB table is written: dynamodb://region/table."""

DATA_STREAM = "arn:aws[a-z-]*:kinesis:[a-z0-9-]+:[0-9]{12}:stream/"
"""What the ARN of a data stream looks like before its name."""

MSK_PREFIX = "msk://"
"""How a cluster of Amazon MSK is written: msk:// and its bootstrap servers' names without that of the broker."""

NAMED_PLACES = (
    f"arn:aws:kinesis:region:account:stream/name, {TABLE_PREFIX}region/table for a lease table, or "
    f"{MSK_PREFIX}orders.abc123.c2.kafka.region.amazonaws.com for a cluster of Amazon MSK"
)
"""How a `NamedPlace` is written, in words, and an example."""
EXAMPLE_OF_A_NAMED_PLACE = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"

S3A_BUCKETS = "spark.hadoop.fs.s3a.bucket."
"""How Spark's settings for one bucket begin."""

_FILE_SCHEME = "file://"

BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
FOLDER = r"[A-Za-z0-9!_.*()=@+,-]+"
SERVICE_ADDRESS = r"https?://[A-Za-z0-9.:\[\]-]+/?"
"""What the bucket, the folder and the endpoint of a place look like; whoever allows places reads them in the same way."""

S3_LOCATION = rf"{S3_PREFIX}{BUCKET}(/{FOLDER})+"
FOLDER_PATH = rf"({_FILE_SCHEME})?/[^\x00]*"


def plain_path(path: str) -> str:
    """Return a path as the file system names it."""
    return path.removeprefix(_FILE_SCHEME)


def bucket_of(location: str) -> str:
    """Return the bucket of a location on S3."""
    return location.removeprefix(S3_PREFIX).partition("/")[0]


def has_no_dots(location: str) -> bool:
    """Return whether no part of a location is `.` or `..`, which Hadoop resolves and S3 does not."""
    return not {".", ".."} & set(location.split("/"))


NO_DOTS = Rule(
    "!self.matches('(^|/)[.][.]?(/|$)')",
    has_no_dots,
    "write the location without . and .. as parts of it; Spark and S3 resolve them to different folders",
)

S3Location = Annotated[
    str, Field(min_length=1, max_length=1024), matches(S3_LOCATION, "write s3a://bucket/folder"), NO_DOTS
]
FolderPath = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    matches(FOLDER_PATH, "write an absolute path, or file:///path"),
    NO_DOTS,
]
Location = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    matches(f"{S3_LOCATION}|{FOLDER_PATH}", "write s3a://bucket/folder, an absolute path, or file:///path"),
    NO_DOTS,
]
Endpoint = Annotated[str, Field(max_length=1024), matches(SERVICE_ADDRESS, "write it as https://host:port")]
TableName = Annotated[
    str,
    Field(min_length=3, max_length=255),
    matches(
        "[A-Za-z0-9_.-]{3,255}", "write a table's name: letters, digits, underscores, dots and hyphens, 3 at least"
    ),
]
Region = Annotated[str, Field(max_length=64), matches("[a-z0-9-]+", "write a region's name, such as eu-central-1")]

S3Endpoint = Annotated[Endpoint | None, Field(description="The address of an S3 service other than Amazon's.")]
S3Region = Annotated[Region | None, Field(description="The region of the bucket.")]
PathStyle = Annotated[
    Flag, Field(description="Whether requests name the bucket in the path instead of in the host's name.")
]


class Described(Protocol):
    """A model that names a folder, on S3 or elsewhere, and has the fields of the service beside it."""

    @property
    def endpoint(self) -> str | None:
        """The service's address."""
        ...

    @property
    def region(self) -> str | None:
        """The bucket's region."""
        ...

    @property
    def path_style(self) -> bool:
        """Whether requests name the bucket in the path."""
        ...

    @property
    def secret_ref(self) -> SecretRef | None:
        """The login."""
        ...


def only_on_s3(field: str) -> Rule:
    """Return the rule that a model describes an S3 service only where its folder, in `field`, is on S3."""
    return Rule(
        f"self.{field}.startsWith('{S3_PREFIX}') || "
        "(!has(self.secretRef) && !has(self.endpoint) && !has(self.region) && !self.pathStyle)",
        lambda it: is_on_s3(getattr(it, field)) or not (it.secret_ref or it.endpoint or it.region or it.path_style),
        f"secretRef, endpoint, region and pathStyle belong to a {field} on s3a://",
    )


def is_on_s3(location: str) -> bool:
    """Return whether a location is a folder of a bucket."""
    return location.startswith(S3_PREFIX)


def place_on_s3(location: str, described: Described) -> S3Place | None:
    """Return the folder of a bucket that a model names; None for a path. Its parts were checked where they were written."""
    if not is_on_s3(location):
        return None
    return S3Place.model_construct(
        location=location,
        endpoint=described.endpoint,
        region=described.region,
        path_style=described.path_style,
        secret_ref=described.secret_ref,
    )


class S3Place(Model):
    """A folder of a bucket, and the service that the bucket belongs to."""

    location: S3Location = Field(description="A folder of this stream alone: s3a://bucket/folder.")
    endpoint: S3Endpoint = None
    region: S3Region = None
    path_style: PathStyle = False
    secret_ref: SecretRef | None = Field(None, description=f"The login; the keys read are {', '.join(S3_SECRET_KEYS)}.")

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return bucket_of(self.location)


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """What a stream reads or is shown in, by the name that administrators allow, and the service that it belongs to.

    A data stream has its ARN as its name; a table is written as `dynamodb://region/table`, a cluster of Amazon MSK as
    `msk://` and the name that its brokers share.
    """

    name: str
    endpoint: str | None = None
