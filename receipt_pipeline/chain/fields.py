"""Stage extract of `chain-v2`: the fields of a shop receipt from the lines that were read."""

from __future__ import annotations

from receipt_pipeline.chain.extract import extract_fields
from receipt_pipeline.chain.values import Reading, ReceiptFields


def find_fields(reading: Reading) -> ReceiptFields:
    """Return the fields of the receipt; pure and deterministic, nothing is guessed by default."""
    return extract_fields(reading)
