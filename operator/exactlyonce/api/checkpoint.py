"""The part of a stream's spec that tells where Spark's logs are kept."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exactlyonce.schema.constraints import Rule, matches
from exactlyonce.schema.model import Flag, Model, ObjectName, SecretRef

CHECKPOINT_SECRET_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "ca.crt")
"""The keys read from the secret of a checkpoint on S3: a login, and the CA of its endpoint as PEM."""

S3_PREFIX = "s3a://"

BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
FOLDER = r"[A-Za-z0-9!_.*()=@+,-]+"
SERVICE_ADDRESS = r"https?://[A-Za-z0-9.:\[\]-]+/?"
"""What bucket, folder and endpoint of a location look like; whoever allows locations reads them in the same way."""


def has_no_dots(location: str) -> bool:
    """Return whether no part of a location is `.` or `..`, which Hadoop resolves and S3 does not."""
    return not {".", ".."} & set(location.split("/"))


_S3 = rf"s3a://{BUCKET}(/{FOLDER})+"
_PATH = r"(file://)?/[^\x00]*"
_ON_S3 = f"self.location.startsWith('{S3_PREFIX}')"
_MOUNT_PATH = "self.persistentVolumeClaim.mountPath"

Location = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    matches(f"{_S3}|{_PATH}", "write s3a://bucket/folder, an absolute path, or file:///path"),
    Rule(
        "!self.matches('(^|/)[.][.]?(/|$)')",
        has_no_dots,
        "write the location without . and .. as parts of it; to Spark they mean another folder than to S3",
    ),
]
MountPath = Annotated[
    str,
    Field(max_length=1024),
    matches(r"(/[^/:\x00]+)+", "write an absolute path without a colon or a slash at its end"),
]
Endpoint = Annotated[str, Field(max_length=1024), matches(SERVICE_ADDRESS, "write it as https://host:port")]
Region = Annotated[str, Field(max_length=64), matches("[a-z0-9-]+", "write a region's name, such as eu-central-1")]


class PersistentVolumeClaim(Model):
    """A claim in the stream's own namespace."""

    claim_name: ObjectName = Field(description="The claim's name.")
    mount_path: MountPath | None = Field(
        None,
        description="Where it is mounted in the pods: the location's folder or one above it. The default is the "
        "location's folder itself.",
    )


class Checkpoint(Model):
    """Where Spark's logs are kept."""

    location: Location = Field(
        description="A folder of this stream alone: s3a://bucket/folder, an absolute path, or file:///path. In a cluster a "
        "path needs persistentVolumeClaim."
    )
    secret_ref: SecretRef | None = Field(
        None,
        description=f"The login to S3; the keys read are {', '.join(CHECKPOINT_SECRET_KEYS)}. Without it, what the "
        "driver's service account and its node are given is used, such as a web identity: the stream is then reconciled in its "
        "driver's pod, unless an administrator has allowed the operator to use its own login there. It may be added, changed "
        "and removed at any time: it says who reads the checkpoint, not where it is.",
    )
    endpoint: Endpoint | None = Field(None, description="The address of an S3 service other than Amazon's.")
    region: Region | None = Field(None, description="The region of the bucket.")
    path_style: Flag = Field(False, description="Whether the bucket stands in the path and not in the host's name.")
    persistent_volume_claim: PersistentVolumeClaim | None = Field(
        None, description="The claim on which the path is. Pods of several nodes use it at once: it is ReadWriteMany."
    )

    rules = (
        Rule(
            f"{_ON_S3} || (!has(self.secretRef) && !has(self.endpoint) && !has(self.region) && !self.pathStyle)",
            lambda it: it.is_on_s3 or not (it.secret_ref or it.endpoint or it.region or it.path_style),
            "secretRef, endpoint, region and pathStyle belong to a location on s3a://",
        ),
        Rule(
            f"!{_ON_S3} || !has(self.persistentVolumeClaim)",
            lambda it: not (it.is_on_s3 and it.persistent_volume_claim),
            "persistentVolumeClaim belongs to a location that is a path",
        ),
        Rule(
            f"!has(self.persistentVolumeClaim) || !has({_MOUNT_PATH}) || "
            f"(self.location.replace('file://', '') + '/').startsWith({_MOUNT_PATH} + '/')",
            lambda it: (
                it.persistent_volume_claim is None
                or it.persistent_volume_claim.mount_path is None
                or f"{it.path}/".startswith(f"{it.persistent_volume_claim.mount_path}/")
            ),
            "persistentVolumeClaim.mountPath is to be the location's folder or one above it",
        ),
    )

    @property
    def is_on_s3(self) -> bool:
        """Whether the logs are objects in a bucket."""
        return self.location.startswith(S3_PREFIX)

    @property
    def path(self) -> str:
        """The location as the file system names it; only where it is a path."""
        return self.location.removeprefix("file://")
