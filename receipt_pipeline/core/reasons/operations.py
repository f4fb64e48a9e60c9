"""Reasons of alerts, quotas, legacy import and rollout."""

from __future__ import annotations

from receipt_pipeline.core.reasons.registry import Remedy, declare

QUOTA_EXCEEDED = declare(
    "QUOTA.EXCEEDED.v1",
    Remedy.RETRY,
    "the submitter's open jobs and this one together have more items than its quota",
    "submit again when earlier jobs are closed, or ask an operator to raise the quota",
)
QUOTA_NOT_RAISED = declare(
    "QUOTA.NOT_RAISED.v1",
    Remedy.FIX_INPUT,
    "a larger quota is allowed only while capacity and queue age are watched over a channel that works",
    "do what `missing` names, then raise the quota again",
)
RUN_FAILED = declare(
    "RUN.FAILED.v1",
    Remedy.RETRY,
    "a Dagster run was not launched, failed or was canceled; what jobs came to stands in the ledger",
    "serve the home with `receipts up`, open the run in the web UI and read its log, then repeat",
)
RUN_UNFINISHED = declare(
    "RUN.UNFINISHED.v1",
    Remedy.RETRY,
    "the services answer, and what was waited for did not come to its end in time",
    "serve the home with `receipts up` and open its runs in the web UI, or read the logs in the home's"
    " dagster folder; what was accepted goes on meanwhile",
)
ALERT_UNKNOWN = declare(
    "ALERT.UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "there is no alert of this kind",
    "name one of the kinds that are listed",
)
CHANNEL_UNKNOWN = declare(
    "CHANNEL.UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "there is no channel of this name",
    "name one of the channels that are listed",
)


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
