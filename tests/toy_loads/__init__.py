"""A toy: a sink that commits in two phases, for a real stream; it is put into a copy of the tree, as `toy_connector` is.

Loads are in the memory of the test's process. Labels are accepted once; where a test says so, the server aborts loads or does
not answer.
"""
