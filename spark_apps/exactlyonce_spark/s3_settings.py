"""How Spark reaches a checkpoint or files on S3: settings that name the service, and a login that stands in no setting.

Settings are for the buckets of the resource alone, so that they change nothing else that a stream reads. The login is given
to the JVM in its environment, from the mounted secret: pyspark starts the JVM with every setting on its command line, where
any process of the machine can read it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from exactlyonce.errors import Refused
from exactlyonce.schema.aws_login import LOGIN_KEYS, set_aside

if TYPE_CHECKING:
    from exactlyonce.api.spec import StreamSpec
    from exactlyonce.schema.places import S3Place

CERTIFICATE_KEY = "ca.crt"
JAVA_OPTIONS = "JAVA_TOOL_OPTIONS"  # read by every JVM, of which pyspark starts two

_FILE_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEYTOOL_SECONDS = 60
_STORE_PASSWORD = "changeit"  # noqa: S105 - of a store with public certificates alone; it is the JRE's own


class CertificateUnusable(Refused):
    """Java does not accept the certificate in the secret for S3."""


def s3_settings(spec: StreamSpec) -> dict[str, str]:
    """Return Spark's settings for the folders of a stream that are on S3; none where none is. Performs no I/O."""
    from exactlyonce.api.places_on_s3 import places_on_s3  # an executor's start does without it

    settings: dict[str, str] = {}
    for place in places_on_s3(spec):
        settings |= _bucket_settings(place)
    if spec.checkpoint.s3 is not None:
        # Its files appear whole or not at all; the default one writes beside and copies, which is neither.
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _FILE_MANAGER
    return settings


def _bucket_settings(place: S3Place) -> dict[str, str]:
    from exactlyonce.schema.places import S3A_BUCKETS

    named = {
        # The environment first, where `give_login` puts the secret's; then a web identity and what else a process is given.
        "aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        "path.style.access": str(place.path_style).lower(),
    }
    if place.endpoint is not None:
        named["endpoint"] = place.endpoint
    if place.region is not None or place.endpoint is not None:
        named["endpoint.region"] = place.region or "us-east-1"
    return {f"{S3A_BUCKETS}{place.bucket}.{key}": value for key, value in named.items()}


def give_login(secret: Mapping[str, str], environment: MutableMapping[str, str]) -> None:
    """Put the login of a secret for S3, and trust in its certificate, into the environment of a JVM to come.

    Python's clients of other services continue with the login that the process was given (`aws.clients`).

    Raises:
        CertificateUnusable: if the certificate cannot be used.
    """
    if any(secret.get(key, "").strip() for key in LOGIN_KEYS):
        set_aside(environment)
        for key in LOGIN_KEYS:  # a token of another login would spoil this one
            environment.pop(key, None)
            if secret.get(key, "").strip():
                environment[key] = secret[key].strip()
    if secret.get(CERTIFICATE_KEY, "").strip():
        store = trust_store(secret[CERTIFICATE_KEY])
        options = f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword={_STORE_PASSWORD}"
        environment[JAVA_OPTIONS] = f"{environment.get(JAVA_OPTIONS, '')} {options}".strip()


def trust_store(certificates: str) -> Path:
    """Make a trust store with the JRE's own certificates and those of a PEM file, and return where it is.

    Raises:
        CertificateUnusable: if there is none in it, or keytool does not take one.
    """
    found = _CERTIFICATE.findall(certificates)
    if not found:
        raise CertificateUnusable(f"{CERTIFICATE_KEY} of the secret for S3 holds no certificate; give it as PEM.")
    home = _java_home()
    folder = Path(tempfile.mkdtemp(prefix="exactlyonce-trust-"))
    store, given = folder / "trust-store", folder / "given.pem"
    shutil.copyfile(home / "lib" / "security" / "cacerts", store)
    command = [str(home / "bin" / "keytool"), "-importcert", "-noprompt", "-file", str(given)]
    command += ["-keystore", str(store), "-storepass", _STORE_PASSWORD]
    for number, one in enumerate(found):
        given.write_text(one)
        answer = subprocess.run(
            [*command, "-alias", f"exactlyonce-{number}"],
            capture_output=True, text=True, check=False, timeout=_KEYTOOL_SECONDS,
        )  # fmt: skip
        if answer.returncode:
            said = " ".join((answer.stdout + answer.stderr).split())
            raise CertificateUnusable(f"{CERTIFICATE_KEY} of the secret for S3 is not taken by Java ({said}).")
    return store


def _java_home() -> Path:
    given = os.environ.get("JAVA_HOME")
    return Path(given) if given else Path(shutil.which("java") or "java").resolve().parents[1]
