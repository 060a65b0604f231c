"""Files as a sink: data files that nobody reads before the ledger names them."""
