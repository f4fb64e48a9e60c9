"""Reconciles ledger, objects, effects and deliveries: finding and repairing are two functions."""
