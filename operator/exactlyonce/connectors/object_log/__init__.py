"""A ledger without a database: a log of objects, of which each is created once and holds one transaction."""
