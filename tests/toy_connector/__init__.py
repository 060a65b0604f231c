"""A connector made by following docs/connectors.md alone: records and rows in the memory of a process that a test serves.

`outside` and `inside` are its folders in the two halves of the project. The test puts them there in a copy of the tree, and
adds the one line to the registry.
"""
