"""Postgres: the sink and the ledger."""
