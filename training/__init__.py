"""Invented receipts, their tampering, and the risk models learned from them."""
