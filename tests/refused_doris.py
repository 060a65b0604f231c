"""What a resource may not say of a table of Doris: each case with its sentence."""

from __future__ import annotations

from typing import Any

from exactlyonce.connectors.doris import load_properties
from tests.resource_documents import DELETING, DORIS, Refused

FRONTEND = "write host:port; the port is http_port of the frontend, 8030 by default"
NAME = "write a name without spaces and slashes"

STAGING = {"location": "s3a://lake/staging", "region": "eu-central-1", "secretRef": {"name": "lake"}}


def of_doris(name: str, at: str, sentence: str, on_server: str | None = None, **changed: Any) -> Refused:
    return Refused(name, {"spec.sink": {"doris": {**DORIS, **changed}}}, at, sentence, on_server)


def beside_doris(name: str, sentence: str, **changed: Any) -> Refused:
    changes = {"spec.sink": {"doris": DORIS}, **{f"spec.{at}": value for at, value in changed.items()}}
    return Refused(name, changes, "spec", sentence)


REFUSED_DORIS = (
    *(
        of_doris(f"the frontend {text}", "spec.sink.doris.frontends", FRONTEND, frontends=[text])
        for text in ("http://fe:8030", "user:password@fe:8030", "fe-1", "fe:0", "fe:65536", "fe/x:8030")
    ),
    of_doris("a frontend twice", "spec.sink.doris.frontends", "fe:8030 stands in it twice; name it once", "Duplicate value",
             frontends=["fe:8030", "fe:8030"]),
    of_doris("a database with a slash", "spec.sink.doris.database", NAME, database="a/b"),
    of_doris("a table with a space", "spec.sink.doris.table", NAME, table="a b"),
    of_doris("TLS to backends alone", "spec.sink.doris.tls", "is not one of", "Unsupported value", tls="Backends"),
    of_doris("a way of writing of others", "spec.sink.doris.write", "is not one of", "Unsupported value", write="Merge"),
    of_doris("bulk load", "spec.sink.doris", "load: BulkLoad (mini load) commits its rows at once and by their label alone",
             load="BulkLoad"),
    of_doris("a load that does not exist", "spec.sink.doris.load", "is not one of", "Unsupported value", load="SparkLoad"),
    *(
        of_doris(f"{load} without a place for files", "spec.sink.doris", "load: BrokerLoad and Auto need stagingLocation",
                 load=load)
        for load in ("BrokerLoad", "Auto")
    ),
    of_doris("broker loads with labels of another form", "spec.sink.doris",
             "load: BrokerLoad and Auto need labelFormat: Default", load="BrokerLoad", labelFormat="Compatible",
             stagingLocation=STAGING),
    of_doris("broker loads with columns that Doris computes", "spec.sink.doris",
             "load: BrokerLoad and Auto take no name=expression in columns", load="Auto", columns=["id", "n=id+1"],
             stagingLocation=STAGING),
    of_doris("broker loads with a property of stream load", "spec.sink.doris",
             "load: BrokerLoad and Auto take no other properties than exec_mem_limit", load="Auto",
             properties={"partitions": "p1"}, stagingLocation=STAGING),
    of_doris("a size without a choice", "spec.sink.doris", "brokerLoadAbove belongs to load: Auto", load="BrokerLoad",
             brokerLoadAbove="1Gi", stagingLocation=STAGING),
    of_doris("a size in bytes", "spec.sink.doris.brokerLoadAbove", "write a size such as 512Mi or 1Gi", load="Auto",
             brokerLoadAbove="1000", stagingLocation=STAGING),
    *(
        of_doris(f"the staging location {text}", "spec.sink.doris.stagingLocation.location", "write s3a://bucket/folder",
                 load="Auto", stagingLocation={**STAGING, "location": text})
        for text in ("s3a://lake", "s3://lake/staging", "s3a://lake/a*", "s3a://lake/a{b,c}", "s3a://lake/a b", "/var/staging")
    ),
    of_doris("a staging location of Amazon's without a region", "spec.sink.doris.stagingLocation",
             "stagingLocation needs the region of a bucket", load="Auto",
             stagingLocation={"location": "s3a://lake/staging", "secretRef": {"name": "lake"}}),
    of_doris("a staging location without a login", "spec.sink.doris.stagingLocation.secretRef", "this field is required",
             "Required value", load="Auto", stagingLocation={"location": "s3a://lake/staging", "region": "eu-central-1"}),
    of_doris("a load that may take a day", "spec.sink.doris.loadTimeout", "give a time from 10s to 1h", loadTimeout="24h"),
    *(
        of_doris(f"the header {name}", "spec.sink.doris.properties", f"properties may not set {name}: {reason}",
                 properties={name: "x"})
        for name, reason in load_properties.REFUSED.items()
    ),
    *(
        of_doris(f"the header {name}", "spec.sink.doris.properties", "properties may set nothing but cloud_cluster, comment, ",
                 properties={name: "x"})
        for name in ("Expect", "Authorization", "Comment")
    ),
    *(
        of_doris(f"a header's value {value!r}", "spec.sink.doris.properties", "give properties values of printable ASCII",
                 properties={"comment": value})
        for value in ("a\r\nlabel: b", "ä", "a" * 1001)
    ),
    *(
        of_doris(f"the column {text!r}", "spec.sink.doris.columns", "write name or name=expression: a name without spaces",
                 columns=[text])
        for text in ("a b", "a,b", "`a`", "=a", "a=", "a=\n", "f(a)=1", "a=ä")
    ),
    of_doris("a column twice", "spec.sink.doris.columns", "id stands in it twice; name it once", "Duplicate value",
             columns=["id", "id"]),
    of_doris("labels of another form", "spec.sink.doris.labelFormat", "is not one of", "Unsupported value", labelFormat="Own"),
    Refused(
        "labels of a location that gives none",
        {"spec.sink": {"doris": {**DORIS, "labelFormat": "Compatible"}}, "spec.checkpoint": {"local": {"path": "/data/a b"}}},
        "spec",
        "sink.doris.labelFormat: Compatible makes labels from the checkpoint's location, which may then contain only letters, "
        "digits and - _ : | / . characters; leave labelFormat out, or choose another location",
    ),
    beside_doris(
        "a ledger in a database beside Doris",
        "sink.doris needs ledger.objectLog, which is also what a stream without ledger has: a failover of "
        "a database may lose the latest batches of a ledger there, and rows that Doris has committed would be loaded again",
        ledger={"postgres": {"secretRef": {"name": "warehouse"}}},
    ),
    *(
        beside_doris(f"{delivery} into Doris", "sink.doris supports only delivery: ExactlyOnce", delivery=delivery)
        for delivery in ("AtLeastOnce", "AtMostOnce")
    ),
    beside_doris("changed rows into Doris", "sink.doris needs outputMode: Append, since what has landed is never changed",
                 outputMode="Update"),
    Refused(
        "dead letters beside Doris",
        {"spec.sink": {"doris": DORIS}, "spec.source.format.onMalformed": "DeadLetter"},
        "spec",
        "source.format.onMalformed: DeadLetter needs a sink that keeps dead letters, not sink.doris",
    ),
    Refused(
        "tombstones that delete from Doris",
        {**DELETING, "spec.sink": {"doris": DORIS}},
        "spec",
        "source.format.onTombstone: Delete needs a sink whose rows can be deleted, not sink.doris",
    ),
)  # fmt: skip
