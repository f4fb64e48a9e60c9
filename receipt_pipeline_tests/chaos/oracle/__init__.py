"""The invariants over plain rows, written without product queries."""
