"""Requests to DynamoDB, and its tables, for the connectors that keep something there."""
