"""Every use case once, by audience."""
