"""Resources made invalid in a known way: the change is the oracle, and the sentence is what is told.

The same cases go through `exactlyonce validate`'s own check (tests/unit/test_resource_schema.py) and through a real API server
(tests/cluster/test_resource.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from exactlyonce.api import refused_conf
from exactlyonce.connectors.kafka import client_properties
from tests.refused_doris import REFUSED_DORIS
from tests.refused_drivers import REFUSED_DRIVERS
from tests.refused_files import REFUSED_FILES
from tests.refused_folders import REFUSED_FOLDERS
from tests.refused_iceberg import REFUSED_ICEBERG
from tests.refused_kafka_sinks import REFUSED_KAFKA_SINKS
from tests.refused_kinesis import REFUSED_KINESIS
from tests.refused_schedules import REFUSED_SCHEDULES
from tests.refused_sinks import REFUSED_SINKS
from tests.refused_sources import REFUSED_SOURCES
from tests.refused_tables import REFUSED_TABLES
from tests.resource_documents import Refused

CASES = (
    *REFUSED_SOURCES,
    *REFUSED_KINESIS,
    *REFUSED_FOLDERS,
    *REFUSED_SINKS,
    *REFUSED_FILES,
    *REFUSED_TABLES,
    *REFUSED_ICEBERG,
    *REFUSED_DORIS,
    *REFUSED_KAFKA_SINKS,
    *REFUSED_DRIVERS,
    *REFUSED_SCHEDULES,
)


OAUTH = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}
BROKEN_LOGINS = (
    ("a login by Kerberos", {"sasl.mechanism": "GSSAPI"}, "sasl.mechanism is one of PLAIN, "),
    ("a check of hosts that is empty", {"ssl.endpoint.identification.algorithm": ""},
     "ssl.endpoint.identification.algorithm is https, or none, which switches off the check"),
    ("tokens of nobody", {"sasl.mechanism": "OAUTHBEARER"}, "which needs it to fetch tokens"),
    ("an endpoint for a password", {**OAUTH, "sasl.mechanism": "PLAIN"}, "belongs to sasl.mechanism: OAUTHBEARER, which"),
    ("a scope for a password", {"sasl.mechanism": "PLAIN", "sasl.oauthbearer.scope": "x"},
     "sasl.oauthbearer.scope and sasl.oauthbearer.extensions belong to"),
    ("an endpoint that is a file", {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "file:///tmp/token"},
     "write sasl.oauthbearer.token.endpoint.url as https://host/path"),
    ("tokens without a secret", OAUTH, "sasl.mechanism needs secretRef"),
    ("a login by IAM without TLS", {"sasl.mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM needs security.protocol: SASL_SSL"),
    ("a login by IAM to brokers elsewhere", {"sasl.mechanism": "AWS_MSK_IAM", "security.protocol": "SASL_SSL"},
     "AWS_MSK_IAM needs source.kafka.bootstrapServers as Amazon names them"),
)  # fmt: skip
"""Logins that are not whole: a name, the properties, and what is said."""


def refused() -> Iterator[Refused]:
    """Yield every case, with one for each setting and property that is refused by name."""
    yield from CASES
    conf = dict.fromkeys((*refused_conf.ALWAYS, *refused_conf.WHEN_TRUE), "x")
    conf |= {f"{prefix}x": "x" for prefix in refused_conf.PREFIXES}
    conf |= dict.fromkeys(refused_conf.ONE_OF, "x")
    conf |= {"hadoop.x": "x", "spark.my.realTimeMode.x": "x", "spark.my.asyncProgress.x": "x"}
    conf |= {f"spark.my.{word.title()}": "canary" for word in refused_conf.SECRET_WORDS}
    conf |= dict.fromkeys(
        (
            "spark.hadoop.fs.azure.account.key.lake.example", "spark.hadoop.fs.s3a.bucket.other.access.key",
            "spark.hadoop.fs.azure.sas.fixed.token", "spark.hadoop.fs.gs.auth.service.account.private.key",
            "spark.ssl.keyPassword", "spark.hadoop.fs.azure.account.oauth2.client.secret",
        ),
        "canary",
    )  # fmt: skip
    s3a = (
        "endpoint",
        "endpoint.region",
        "path.style.access",
        "impl",
        "proxy.host",
        "aws.credentials.provider",
        "encryption.algorithm",
    )
    conf |= {f"{refused_conf.S3A}{name}": "x" for name in s3a}
    for key, value in conf.items():
        at, sentence = "spec.sparkConf", "sparkConf may not set "
        if key in refused_conf.ALWAYS or key in refused_conf.WHEN_TRUE:
            sentence += f"{key}: {refused_conf.refusal(key, value)}"
        yield Refused(f"the setting {key}", {"spec.sparkConf": {key: value}}, at, sentence)
    for key in ("sasl.login.callback.handler.class", "ssl.engine.factory.class", "check.crcs", "Client.Id"):
        at = "spec.source.kafka.properties"
        yield Refused(f"the property {key}", {at: {key: "x"}}, at, "properties may set nothing but client.dns.lookup, ")
    for name, given, sentence in BROKEN_LOGINS:
        yield Refused(name, {at: given}, "spec.source.kafka", sentence)
    properties = {**client_properties.REFUSED, **{f"ssl.{word}": "" for word in client_properties.SECRET_WORDS}}
    for key, reason in properties.items():
        at, sentence = "spec.source.kafka.properties", f"properties may not set {f'{key}: {reason}' if reason else ''}"
        yield Refused(f"the property {key}", {at: {key: "canary"}}, at, sentence)
