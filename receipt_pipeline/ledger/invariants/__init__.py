"""What must always hold, as queries for its violations."""
