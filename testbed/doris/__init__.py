"""A stand-in for Apache Doris: it follows the published protocol of stream load in two phases, and it is not Doris.

The tests have no server of Doris. What is here is written from Doris' documentation and its published source; each rule names
where it is from, as a path in apache/doris (`fe/`, `be/`, `regression-test/`) or in apache/doris-website (`docs/`). What it
does not know, such as SQL, broker load, replicas and TLS, it does not answer. Clients that were not written here check it:
Doris' own Spark connector (`tests/integration/test_doris_connector.py`) and curl (`test_doris_curl.py` beside it).
"""
