"""Failure drills in a temporary data directory, and the failure plans that they use."""
