"""Sources, sinks and ledgers: a folder for each."""
