"""The part of a stream's spec that tells where Spark's logs are kept."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exactlyonce.schema.constraints import Rule, matches
from exactlyonce.schema.model import Model, ObjectName, SecretRef
from exactlyonce.schema.places import S3_SECRET_KEYS, FolderPath, S3Place, plain_path

MountPath = Annotated[
    str,
    Field(max_length=1024),
    matches(r"(/[^/:\x00]+)+", "write an absolute path without a colon or a slash at its end"),
]


class S3Checkpoint(S3Place):
    """Logs in a bucket on S3."""

    secret_ref: SecretRef | None = Field(
        None,
        description=f"The login to S3; the keys read are {', '.join(S3_SECRET_KEYS)}. Without it, the driver uses what its "
        "service account and its node are given, such as a web identity: the stream is then reconciled in its "
        "driver's pod, unless an administrator has allowed the operator to use its own login there. It may be added, changed "
        "and removed at any time: it says who reads the checkpoint, not where it is.",
    )


class VolumeCheckpoint(Model):
    """Logs on a PersistentVolumeClaim in the stream's own namespace."""

    claim_name: ObjectName = Field(
        description="The claim's name. Pods on several nodes use it at the same time, so it has to be ReadWriteMany."
    )
    path: FolderPath = Field(
        description="A folder of this stream alone, as its pods see it: an absolute path, or file:///path."
    )
    mount_path: MountPath | None = Field(
        None,
        description="Where the claim is mounted in the pods: the folder of path, or one above it. The default is the folder of "
        "path itself.",
    )

    rules = (
        Rule(
            "!has(self.mountPath) || (self.path.replace('file://', '') + '/').startsWith(self.mountPath + '/')",
            lambda it: it.mount_path is None or f"{plain_path(it.path)}/".startswith(f"{it.mount_path}/"),
            "mountPath has to be the folder of path, or one above it",
        ),
    )

    @property
    def mounted_at(self) -> str:
        """Where the claim is mounted in the pods."""
        return self.mount_path or plain_path(self.path)


class LocalCheckpoint(Model):
    """Logs in a folder of the machine that the driver runs on."""

    path: FolderPath = Field(description="A folder of this stream alone: an absolute path, or file:///path.")


class Checkpoint(Model):
    """Where Spark's logs are kept."""

    s3: S3Checkpoint | None = Field(None, description="In a bucket on S3.")
    volume: VolumeCheckpoint | None = Field(None, description="On a PersistentVolumeClaim.")
    local: LocalCheckpoint | None = Field(
        None, description="In a folder of this machine; for exactlyonce run, not for a cluster."
    )

    one_of = ("s3", "volume", "local")

    @property
    def location(self) -> str:
        """The folder of the checkpoint, in whatever it is."""
        if self.s3 is not None:
            return self.s3.location
        folder = self.volume or self.local
        assert folder is not None, "one of them is given"
        return folder.path

    @property
    def secret_ref(self) -> SecretRef | None:
        """The secret with the login, if there is one."""
        return None if self.s3 is None else self.s3.secret_ref
