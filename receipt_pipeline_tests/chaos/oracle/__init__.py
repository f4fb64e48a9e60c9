"""The one independent oracle: invariants over plain rows, written without product queries."""
