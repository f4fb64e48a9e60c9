"""Reasons about alerts, their channels, and how much a submitter may hand in."""

from __future__ import annotations

from receipt_pipeline.core.reasons.declared import Remedy, declare

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
