"""Reasons about unresolved items, refused repairs and expired authority."""

from __future__ import annotations

from receipt_pipeline.core.reasons.registry import Remedy, declare

# Rejected and unresolved items.
ITEMS_REJECTED = declare(
    "ITEMS.REJECTED.v1",
    Remedy.FIX_INPUT,
    "Some items were rejected. All others are in the result.",
    "`receipts result JOB --rejections FILE` lists them. Submit the corrected scans.",
)
ITEMS_UNRESOLVED = declare(
    "ITEMS.UNRESOLVED.v1",
    Remedy.REVIEW,
    "Some items are unresolved. All others are in the result.",
    "Preview a retry with `receipts retry JOB --preview`. Finished items are not touched.",
)
JOB_RETRIED = declare(
    "JOB.RETRIED.v1",
    Remedy.NONE,
    "A child job processes the unresolved items of this job.",
    "Follow the child job named in the status.",
)

# Refused repairs.
RETRY_JOB_OPEN = declare(
    "RETRY.JOB_OPEN.v1",
    Remedy.STAND_DOWN,
    "The job is still open, so its items cannot be retried.",
    "`receipts status JOB` shows the safe next action.",
)
RETRY_NOTHING_LEFT = declare(
    "RETRY.NOTHING_LEFT.v1",
    Remedy.NONE,
    "The job has no unresolved items.",
    "Read the result. Submit corrected scans as a new job.",
)
RETRY_INPUT_GONE = declare(
    "RETRY.INPUT_GONE.v1",
    Remedy.FIX_INPUT,
    "Stored scans of the unresolved items are missing or changed, so the same input cannot be read again.",
    "Submit these scans again under a new key.",
)
SUPERSEDE_ITSELF = declare(
    "SUPERSEDE.ITSELF.v1",
    Remedy.FIX_INPUT,
    "A job cannot replace itself, and an abandoned or replaced job cannot replace another.",
    "Name a job that is open or has succeeded, or a manifest.",
)
FACT_STANDS = declare(
    "INVESTIGATION.FACT_STANDS.v1",
    Remedy.LOOK_UP,
    "The problem under investigation still exists, and a note does not change that.",
    "Do the allowed repair, then `receipts reconcile`. Withdraw a lost result with --withdraw.",
)
TASK_DONE = declare(
    "TASK.DONE.v1",
    Remedy.NONE,
    "The review task is already closed.",
    "Nothing to do. `receipts tasks list --all` shows closed tasks.",
)
RELEASE_LAST_LIVE = declare(
    "RELEASE.LAST_LIVE.v1",
    Remedy.FIX_INPUT,
    "This is the last release that is not retired. Without it, nothing can be accepted.",
    "Approve another release first, or repeat with --force.",
)
RELEASE_WORSE = declare(
    "RELEASE.WORSE.v1",
    Remedy.REVIEW,
    "Its recorded evaluation is significantly worse than that of the approved release.",
    "Look at its evaluation page, or repeat with --despite and a reason, which is recorded.",
)
EVALUATION_NO_SET = declare(
    "EVALUATION.NO_SET.v1",
    Remedy.FIX_INPUT,
    "No folder of labeled scans is set, or the folder is empty.",
    "Set RECEIPTS_EVALUATION_SET to a folder of scans with their truth files.",
)
EVALUATION_ALTERED = declare(
    "EVALUATION.ALTERED.v1",
    Remedy.RETRY,
    "The stored evaluation is not the one that was recorded.",
    "Evaluate the release again.",
)
REPORT_NONE = declare(
    "REPORT.NONE.v1", Remedy.RETRY, "No report has been published yet.", "Publish one with `receipts report`."
)

# Authority.
AUTHORITY_EXPIRED = declare(
    "AUTHORITY.EXPIRED.v1", Remedy.FIX_INPUT, "The caller's grant has expired.", "Renew it with `receipts grants give`."
)
AUTHORITY_REVOKED = declare(
    "AUTHORITY.REVOKED.v1",
    Remedy.REVIEW,
    "The caller's grant was revoked.",
    "Ask an operator. Accepted work keeps its scope, and its decisions go to review.",
)
