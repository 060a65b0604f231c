"""The folders on S3 that a stream's Spark reads and writes, and with which login. Performs no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exactlyonce.api.spec import StreamSpec
    from exactlyonce.schema.model import SecretRef
    from exactlyonce.schema.places import S3Place


def places_on_s3(spec: StreamSpec) -> tuple[S3Place, ...]:
    """Return each folder on S3 that Spark uses: the checkpoint and the sink's."""
    return tuple(place for place in (spec.checkpoint.s3, spec.sink.spec.place_on_s3) if place is not None)


def login_to_s3(spec: StreamSpec) -> SecretRef | None:
    """Return the secret with the login of Spark's processes to S3: rules see to it that there is one at most."""
    return next((place.secret_ref for place in places_on_s3(spec) if place.secret_ref is not None), None)
