"""Objects that are copied or written in parts: each part is a request with a time of its own, and all appear at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from exactlyonce.aws.errors import AwsError

PART_BYTES = 64 << 20
"""An object that is larger is copied and written in parts of this size."""

Request = Callable[..., Any]
"""Makes a call of the bucket: the operation, and its arguments by name."""


def copy_object(request: Request, bucket: str, source: str, target: str) -> None:
    """Let the service copy an object, as it is when this begins.

    Raises:
        AwsError: by situation; ConditionFailed if the object has changed meanwhile.
    """
    found, place = request("HeadObject", Key=source), {"Bucket": bucket, "Key": source}
    size, unchanged = found["ContentLength"], {"CopySource": place, "CopySourceIfMatch": found["ETag"]}
    if size <= PART_BYTES:
        request("CopyObject", Key=target, **unchanged)
        return

    def part(start: int, end: int, **named: Any) -> str:
        made = request("UploadPartCopy", CopySourceRange=f"bytes={start}-{end - 1}", **unchanged, **named)
        return str(made["CopyPartResult"]["ETag"])

    _in_parts(request, target, size, part)


def write_object(request: Request, key: str, content: BinaryIO, size: int) -> None:
    """Write an object of what a file holds.

    Raises:
        AwsError: by situation.
    """
    if size <= PART_BYTES:
        request("PutObject", Key=key, Body=content.read())
        return

    def part(start: int, end: int, **named: Any) -> str:
        content.seek(start)
        return str(request("UploadPart", Body=content.read(end - start), **named)["ETag"])

    _in_parts(request, key, size, part)


def _in_parts(request: Request, key: str, size: int, part: Callable[..., str]) -> None:
    """Write an object in parts, which `part` sends from one byte to another; whoever dies on the way leaves them hidden."""
    upload = {"Key": key, "UploadId": str(request("CreateMultipartUpload", Key=key)["UploadId"])}
    try:
        parts = [
            {"PartNumber": number, "ETag": part(start, min(start + PART_BYTES, size), PartNumber=number, **upload)}
            for number, start in enumerate(range(0, size, PART_BYTES), start=1)
        ]
        request("CompleteMultipartUpload", MultipartUpload={"Parts": parts}, **upload)
    except BaseException:
        with suppress(AwsError):
            request("AbortMultipartUpload", **upload)
        raise
