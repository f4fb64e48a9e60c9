"""Reasons about what a closed or held job left, who may repair it, and repairs that are refused."""

from __future__ import annotations

from receipt_pipeline.core.reasons.declared import Remedy, declare

# What a job left.
ITEMS_REJECTED = declare(
    "ITEMS.REJECTED.v1",
    Remedy.FIX_INPUT,
    "some items were refused by validation, the others have their outcome",
    "take the rejection list with `receipts result JOB --rejections FILE` and submit those scans corrected",
)
ITEMS_UNRESOLVED = declare(
    "ITEMS.UNRESOLVED.v1",
    Remedy.REVIEW,
    "some items came to no outcome, the others have theirs",
    "look at `receipts retry JOB --unresolved --preview`; finished items are not touched",
)
JOB_RETRIED = declare(
    "JOB.RETRIED.v1",
    Remedy.NONE,
    "a child job works on what this job left without an outcome",
    "follow the child job that the status names",
)

# Repairs that are refused.
TASK_DONE = declare(
    "TASK.DONE.v1",
    Remedy.NONE,
    "the review task is closed already",
    "nothing; see `receipts tasks list --all`",
)
RELEASE_LAST_LIVE = declare(
    "RELEASE.LAST_LIVE.v1",
    Remedy.FIX_INPUT,
    "it is the last release that is not retired; without it nothing can be accepted",
    "approve another first, or repeat with --force",
)
REPORT_NONE = declare(
    "REPORT.NONE.v1",
    Remedy.RETRY,
    "no report has been published in this home yet",
    "publish one with `receipts report`",
)
