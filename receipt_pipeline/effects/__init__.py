"""Delivers and consumes: messages out of the outbox, one action per decision ID."""
