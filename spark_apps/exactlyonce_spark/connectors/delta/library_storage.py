"""What the libraries of table formats are told of where a table is, and of the login to it. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.errors import SecretRefused
from exactlyonce.schema.places import is_on_s3, plain_path


def library_uri(location: str) -> str:
    """Return a table's location as the libraries name it, which do not know s3a:// in each of their parts."""
    return f"s3://{location.partition('://')[2]}" if is_on_s3(location) else f"file://{plain_path(location)}"


def require_no_certificate(secret: Mapping[str, str], field: str, tables: str) -> None:
    """Require that the secret of a sink has no certificate, which the libraries cannot be given.

    Raises:
        SecretRefused: if it has one.
    """
    if secret.get("ca.crt", "").strip():
        raise SecretRefused(
            f"The secret that {field} names has ca.crt, which the library of {tables} tables does not take; leave it out, and "
            "add the certificate to those that the driver's image trusts."
        )
