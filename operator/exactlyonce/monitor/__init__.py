"""How far streams are behind their sources, measured from source and ledger, so that it is right while no driver runs."""
