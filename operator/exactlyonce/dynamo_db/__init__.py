"""Requests to DynamoDB, and its tables, for the lease tables of Kinesis."""
