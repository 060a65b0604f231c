"""A stand-in for Apache Doris: it follows the published protocol of stream load in two phases and of broker load from S3.

It is not Doris.

The tests have no server of Doris. What is here is written from Doris' documentation and its published source; each rule names
where it is from, as a path in apache/doris (`fe/`, `be/`, `regression-test/`) or in apache/doris-website (`docs/`). What it
does not know, such as other SQL, replicas and TLS, it does not answer. Clients that were not written here check it:
Doris' own Spark connector (`tests/integration/test_doris_connector.py`), curl (`test_doris_curl.py` beside it), and, for
MySQL's protocol, PyMySQL (`tests/unit/test_doris_broker_stand_in.py`).
"""
