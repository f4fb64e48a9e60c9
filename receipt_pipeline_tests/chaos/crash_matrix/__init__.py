"""Crashes at every durable boundary."""
