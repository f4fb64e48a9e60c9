"""Reasons of alerts, quotas, legacy import and rollout."""

from __future__ import annotations

from receipt_pipeline.core.reasons.registry import Remedy, declare

QUOTA_EXCEEDED = declare(
    "QUOTA.EXCEEDED.v1",
    Remedy.RETRY,
    "With this job, the submitter's open jobs have more items than its quota.",
    "Submit again when earlier jobs are closed, or ask an operator to raise the quota.",
)
QUOTA_NOT_RAISED = declare(
    "QUOTA.NOT_RAISED.v1",
    Remedy.FIX_INPUT,
    "A quota can be raised only while capacity and queue age alerts are sent over a working channel.",
    "Provide what is named as missing, then raise the quota again.",
)
RUN_FAILED = declare(
    "RUN.FAILED.v1",
    Remedy.RETRY,
    "A Dagster run was not started, failed, or was canceled. The ledger has the state of its jobs.",
    "Start `receipts up`, read the log of the run in the web UI, then repeat.",
)
RUN_UNFINISHED = declare(
    "RUN.UNFINISHED.v1",
    Remedy.RETRY,
    "The services answer, but the work did not finish in time.",
    "Open its runs in the web UI, or read the logs in the dagster folder of the data directory. "
    "Accepted jobs continue meanwhile.",
)
ALERT_UNKNOWN = declare(
    "ALERT.UNKNOWN.v1", Remedy.FIX_INPUT, "There is no alert of this kind.", "Name one of the listed kinds."
)
CHANNEL_UNKNOWN = declare(
    "CHANNEL.UNKNOWN.v1", Remedy.FIX_INPUT, "There is no channel with this name.", "Name one of the listed channels."
)


IMPORT_BY_WORD = declare(
    "IMPORT.BY_WORD.v1",
    Remedy.NONE,
    "The class of this job is what the legacy system reported. It was not verified here.",
    "Look up the result in the old records. Submit the scans again if you need a verified result.",
)
IMPORT_OPEN_THERE = declare(
    "IMPORT.OPEN_THERE.v1",
    Remedy.LOOK_UP,
    "The job was still open in the legacy system when it was imported.",
    "Look up the job there and import its final row, or record the finding in the investigation.",
)
IMPORT_STATE_UNKNOWN = declare(
    "IMPORT.STATE_UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "The state of this row is not mapped to a class.",
    "Map it with --state STATE=CLASS, or STATE=open, and import the file again.",
)
IMPORT_CONFLICT = declare(
    "IMPORT.CONFLICT.v1",
    Remedy.REVIEW,
    "This job was imported before with different facts. The first record is kept.",
    "Compare the named fields with the legacy system, then correct the export or the investigation.",
)
IMPORT_UNREADABLE = declare(
    "IMPORT.UNREADABLE.v1", Remedy.FIX_INPUT, "The file of legacy jobs cannot be read.", "Name a readable CSV file."
)
ROLLOUT_SHADOW = declare(
    "ROLLOUT.SHADOW.v1",
    Remedy.NONE,
    "A legacy system still serves this caller. The job is processed and compared, but nothing is sent.",
    "Use the answer of the legacy system. Submit under a new key once this instance serves you.",
)
ROLLBACK_SERVED = declare(
    "ROLLBACK.SERVED.v1",
    Remedy.FIX_INPUT,
    "This instance is running, and its services cannot use the older schema.",
    "Stop `receipts up` and repeat the command.",
)
