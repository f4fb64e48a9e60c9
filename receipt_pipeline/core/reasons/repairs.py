"""Reasons about what a closed or held job left, who may repair it, and repairs that are refused."""

from __future__ import annotations

from receipt_pipeline.core.reasons.registry import Remedy, declare

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
RETRY_JOB_OPEN = declare(
    "RETRY.JOB_OPEN.v1",
    Remedy.STAND_DOWN,
    "the job is still open, so nothing of it may be worked on beside it",
    "see `receipts status` for the safe next action",
)
RETRY_NOTHING_LEFT = declare(
    "RETRY.NOTHING_LEFT.v1",
    Remedy.NONE,
    "no item of the job is left without an outcome",
    "read the result; submit corrected scans as a new job",
)
RETRY_INPUT_GONE = declare(
    "RETRY.INPUT_GONE.v1",
    Remedy.FIX_INPUT,
    "the stored scans of the items left are gone or altered, so the same input cannot be read again",
    "submit these scans again under a new key",
)
SUPERSEDE_ITSELF = declare(
    "SUPERSEDE.ITSELF.v1",
    Remedy.FIX_INPUT,
    "a job cannot be replaced by itself, or by a job that was given up or was replaced by it",
    "name a job that is open or has succeeded, or a manifest",
)
FACT_STANDS = declare(
    "INVESTIGATION.FACT_STANDS.v1",
    Remedy.LOOK_UP,
    "what the investigation asks about is still so, and a word does not change it",
    "do its allowed repair, then `receipts reconcile`; a result that is lost is given up with --withdraw",
)
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
RELEASE_WORSE = declare(
    "RELEASE.WORSE.v1",
    Remedy.REVIEW,
    "its evaluation on record says that it is worse than the approved release beyond noise",
    "look at its evaluation page, or repeat with --despite and the reason, which is recorded",
)
EVALUATION_NO_SET = declare(
    "EVALUATION.NO_SET.v1",
    Remedy.FIX_INPUT,
    "no folder of labelled scans is set, or it holds none",
    "set RECEIPTS_EVALUATION_SET to a folder of scans with their truth files",
)
EVALUATION_ALTERED = declare(
    "EVALUATION.ALTERED.v1",
    Remedy.RETRY,
    "the kept evaluation is not the one that was recorded",
    "evaluate the release again",
)
REPORT_NONE = declare(
    "REPORT.NONE.v1",
    Remedy.RETRY,
    "no report has been published in this home yet",
    "publish one with `receipts report`",
)

# Authority.
AUTHORITY_EXPIRED = declare(
    "AUTHORITY.EXPIRED.v1",
    Remedy.FIX_INPUT,
    "the grant under which the caller acts has expired",
    "have it renewed with `receipts grants give`",
)
AUTHORITY_REVOKED = declare(
    "AUTHORITY.REVOKED.v1",
    Remedy.REVIEW,
    "the caller's grant was revoked",
    "ask an operator; accepted work keeps its scope and its decisions go to review",
)
