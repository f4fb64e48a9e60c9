"""Tables of the ledger and their migrations."""
