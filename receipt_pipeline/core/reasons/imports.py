"""Reasons about jobs that an older system ran, and about the stages in which this one takes over."""

from __future__ import annotations

from receipt_pipeline.core.reasons.declared import Remedy, declare

IMPORT_BY_WORD = declare(
    "IMPORT.BY_WORD.v1",
    Remedy.NONE,
    "the class of this job is the word of the older system that ran it; nothing of it was verified here",
    "ask the older system's records for the result; submit the scans again where a verified one is needed",
)
IMPORT_OPEN_THERE = declare(
    "IMPORT.OPEN_THERE.v1",
    Remedy.LOOK_UP,
    "the older system had not ended this job when it was imported",
    "look the job up there and import its final row, or record what was found in the investigation",
)
IMPORT_STATE_UNKNOWN = declare(
    "IMPORT.STATE_UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "no class is known for this word of the older system, and none is guessed",
    "say what it means with --state WORD=CLASS, and import the file again",
)
IMPORT_CONFLICT = declare(
    "IMPORT.CONFLICT.v1",
    Remedy.REVIEW,
    "this job of the older system was imported before with other facts; the first record stands",
    "compare the named fields with the older system, and correct the export or the record's investigation",
)
IMPORT_UNREADABLE = declare(
    "IMPORT.UNREADABLE.v1",
    Remedy.FIX_INPUT,
    "the file of older jobs cannot be read",
    "name a CSV or Parquet file that this user may read",
)
ROLLOUT_SHADOW = declare(
    "ROLLOUT.SHADOW.v1",
    Remedy.NONE,
    "an older system still serves this caller: the job is worked and compared, and sends nothing on",
    "act on the older system's answer; submit under a new key once this one serves you",
)
ROLLBACK_SERVED = declare(
    "ROLLBACK.SERVED.v1",
    Remedy.FIX_INPUT,
    "this home is being served, and its services would meet a schema that they do not know",
    "stop `receipts up`, and repeat the command",
)
