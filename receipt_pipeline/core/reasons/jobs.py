"""Reasons about ownership, attempts, closing, effects, the report, and the instance."""

from __future__ import annotations

from receipt_pipeline.core.reasons.registry import Remedy, declare

# Ownership, attempts and closure.
STALE_LEASE = declare(
    "LEASE.STALE_EPOCH.v1",
    Remedy.STAND_DOWN,
    "Another worker owns the job now.",
    "Nothing to do. The current owner continues.",
)
NOT_CLAIMABLE = declare(
    "CLAIM.NOT_READY.v1",
    Remedy.STAND_DOWN,
    "The job cannot be claimed: it is owned, waiting or closed.",
    "Nothing to do.",
)
WORKER_LOST = declare(
    "WORKER.LOST.v1",
    Remedy.REVIEW,
    "The worker stopped while it processed this item.",
    "Look at the scan: it may have crashed the worker.",
)
QUEUE_AGE_REACHED = declare(
    "QUEUE.AGE_REACHED.v1",
    Remedy.FIX_INPUT,
    "The job was not started before its deadline.",
    "If you still need it: `receipts retry JOB`.",
)
NO_CAPABLE_WORKER = declare(
    "WORKER.NONE_CAPABLE.v1",
    Remedy.RETRY,
    "No running worker supports this job's release.",
    "Start one with `receipts up`.",
)
CANCELED_BY_CALLER = declare(
    "JOB.CANCELED.v1",
    Remedy.NONE,
    "The job was canceled on request.",
    "If you still need it, submit it again under a new key.",
)
SUPERSEDED_BY_JOB = declare("JOB.SUPERSEDED.v1", Remedy.NONE, "Another job replaces this one.", "Follow the other job.")
ATTEMPTS_EXHAUSTED = declare(
    "ATTEMPTS.EXHAUSTED.v1", Remedy.REVIEW, "All attempts failed.", "Read the investigation, then `receipts retry JOB`."
)
PROCESSING_TIMEOUT = declare(
    "PROCESSING.TIMEOUT.v1",
    Remedy.REVIEW,
    "The job did not finish within its processing timeout.",
    "Retry the unresolved items: `receipts retry JOB`.",
)
CUTOFF_REACHED = declare(
    "CUTOFF.REACHED.v1",
    Remedy.REVIEW,
    "The job did not finish before its reconciliation cutoff.",
    "Retry the unresolved items: `receipts retry JOB`.",
)
ITEM_OVERTAKEN = declare(
    "ITEM.OVERTAKEN.v1",
    Remedy.REVIEW,
    "The item was started but not finished in time.",
    "Retry the unresolved items: `receipts retry JOB`.",
)
ALL_REJECTED = declare(
    "ITEMS.ALL_REJECTED.v1",
    Remedy.FIX_INPUT,
    "All files were rejected.",
    "`receipts result JOB --rejections FILE` lists the reasons.",
)
UPLOAD_FAILED = declare(
    "UPLOAD.FAILED.v1",
    Remedy.RETRY,
    "The result could not be stored.",
    "Nothing to do. The upload is repeated until all attempts are used, and outcomes are kept.",
)
UPLOAD_UNKNOWN = declare(
    "UPLOAD.UNKNOWN.v1",
    Remedy.LOOK_UP,
    "It is not known whether the result was stored.",
    "Run `receipts reconcile` to look it up before repeating anything.",
)
RESULT_MISMATCH = declare(
    "RESULT.MISMATCH.v1",
    Remedy.REVIEW,
    "The stored result does not match its record and is not served.",
    "Read the investigation: `receipts investigations list`.",
)
RESULT_MISSING = declare(
    "RESULT.MISSING.v1",
    Remedy.REVIEW,
    "The job succeeded but its stored result is missing.",
    "Read the investigation, then restore the result or withdraw it.",
)
OBJECT_UNREADABLE = declare(
    "OBJECT.UNREADABLE.v1",
    Remedy.RETRY,
    "The object store cannot be read. It is not known whether the object exists.",
    "Check the disk and permissions of the store, then repeat.",
)
RESULT_QUARANTINED = declare(
    "RESULT.QUARANTINED.v1",
    Remedy.REVIEW,
    "The job has different outputs. All are kept and none is served.",
    "Resolve the investigation: keep one digest or withdraw the result.",
)
QUARANTINE_DIGEST_UNKNOWN = declare(
    "QUARANTINE.DIGEST_UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "No open quarantine of the job has this digest.",
    "Name one of the digests in the evidence of the investigation.",
)
QUARANTINE_NOT_HELD = declare(
    "QUARANTINE.OUTPUT_NOT_HELD.v1",
    Remedy.REVIEW,
    "The output to keep is not stored here, or is not the committed one.",
    "Keep the digest that the ledger committed, or withdraw the result and submit the scans again.",
)
RESULT_WITHDRAWN = declare(
    "RESULT.WITHDRAWN.v1",
    Remedy.NONE,
    "The result was withdrawn by a recorded decision.",
    "Submit the scans again under a new key.",
)
RESULT_NOT_READY = declare(
    "RESULT.NOT_READY.v1",
    Remedy.RETRY,
    "The job has no result yet.",
    "Wait until the job is closed: `receipts status JOB`.",
)
RESULT_NONE = declare(
    "RESULT.NONE.v1",
    Remedy.NONE,
    "The job closed without a result.",
    "Read its terminal class and reason: `receipts status JOB`.",
)
RESULT_RETIRED = declare(
    "RESULT.RETENTION_PASSED.v1",
    Remedy.NONE,
    "The result was deleted after its retention time.",
    "The receipt is still available. If you need the data, submit the scans again.",
)
SCAN_RETIRED = declare(
    "SCAN.RETENTION_PASSED.v1",
    Remedy.NONE,
    "A scan that no job needs was deleted.",
    "If you still need it, submit the scan again.",
)
STATE_REFUSES = declare(
    "STATE.REFUSES.v1",
    Remedy.NONE,
    "The state of the job does not allow this.",
    "`receipts status JOB` shows the safe next action.",
)

# Effects and delivery.
NOTIFICATION_DROPPED = declare(
    "NOTIFICATION.DROPPED.v1",
    Remedy.LOOK_UP,
    "The notification was lost.",
    "Nothing to do. The consumer reads the ledger.",
)
NOTIFICATION_FAILED = declare(
    "NOTIFICATION.FAILED.v1",
    Remedy.RETRY,
    "The channel refused the notification.",
    "Nothing to do. It is sent again until all delivery attempts are used.",
)
NOTIFICATION_UNKNOWN = declare(
    "NOTIFICATION.UNKNOWN.v1",
    Remedy.LOOK_UP,
    "It is not known whether a notification arrived, and its channel cannot be asked.",
    "Ask the receiver for the message id and record the answer. It is never sent again without that.",
)
EVENT_CONFLICT = declare(
    "EVENT.CONFLICT.v1",
    Remedy.REVIEW,
    "A delivery names a different result than the ledger.",
    "Read the quarantine of the job.",
)
EVENT_LATE = declare(
    "EVENT.LATE.v1",
    Remedy.NONE,
    "An event arrived after the state of the job had changed.",
    "Nothing to do. The ledger decides, not the event.",
)

# Investigations and the report.
INVESTIGATION_UNKNOWN_OWNER = declare(
    "INVESTIGATION.OWNER_INACTIVE.v1",
    Remedy.FIX_INPUT,
    "The owner is not an active principal.",
    "Name an active principal.",
)
INVESTIGATION_CLOSED = declare(
    "INVESTIGATION.CLOSED.v1",
    Remedy.NONE,
    "The investigation is already resolved.",
    "Nothing to do. Its resolution remains valid.",
)
TERMINAL_MISSING = declare(
    "TERMINAL.MISSING.v1",
    Remedy.REVIEW,
    "The job is on hold or past its deadlines and has no terminal record.",
    "Read its attempts and holds. `receipts reconcile` closes what can be closed.",
)
TERMINAL_CONFLICT = declare(
    "TERMINAL.CONFLICT.v1",
    Remedy.REVIEW,
    "The job's row and its events do not agree on one terminal record.",
    "Compare row and events. If the ledger was edited, restore it from a backup.",
)
ITEMS_UNBALANCED = declare(
    "ITEMS.UNBALANCED.v1",
    Remedy.REVIEW,
    "The items of the job do not add up to its accepted scope, or contradict its terminal class.",
    "Compare the items with the accepted event. If the ledger was edited, restore it from a backup.",
)
ATTEMPTS_BEYOND_BUDGET = declare(
    "ATTEMPTS.BEYOND_BUDGET.v1",
    Remedy.REVIEW,
    "The job had more attempts than its limits allow.",
    "Read its attempts and find out who claims it outside of this product.",
)
EFFECT_GAP = declare(
    "EFFECT.GAP.v1",
    Remedy.LOOK_UP,
    "An effect is missing, overdue, or not in the ledger.",
    "Look up the effect at its receiver. The gap closes once the effect is recorded.",
)
OBJECT_UNEXPLAINED = declare(
    "OBJECT.UNEXPLAINED.v1",
    Remedy.REVIEW,
    "No record in the ledger names this stored object.",
    "Find out who wrote it. Resolve the investigation to keep it, or delete the object.",
)
REPORT_UNREADABLE = declare(
    "REPORT.UNREADABLE.v1",
    Remedy.RETRY,
    "The published report cannot be opened.",
    "Nothing to do. The next publication sets it aside and builds a new one from the ledger.",
)
REPORT_REBUILT = declare(
    "REPORT.REBUILT.v1",
    Remedy.REVIEW,
    "The report was damaged, changed by hand, or belonged to another ledger. It was rebuilt from the ledger.",
    "Find out what happened to the old file: it is kept in set-aside/.",
)
REPORT_BUSY = declare(
    "REPORT.BUSY.v1",
    Remedy.RETRY,
    "Another publication of the report is running.",
    "Wait for it and repeat. The published report stays readable.",
)
REPORT_SEVERAL_TENANTS = declare(
    "REPORT.SEVERAL_TENANTS.v1",
    Remedy.NONE,
    "The published report also covers other tenants.",
    "Repeat without --published for the report of your tenant alone.",
)
REPORT_SQL = declare(
    "REPORT.SQL.v1", Remedy.FIX_INPUT, "DuckDB refused the query.", "Correct the query. The report is read-only."
)

# Access, settings and infrastructure.
NOT_FOUND = declare(
    "NOT_FOUND.v1", Remedy.FIX_INPUT, "Not found, or not visible to this tenant.", "Check the id and the tenant."
)
NOT_PERMITTED = declare(
    "NOT_PERMITTED.v1", Remedy.FIX_INPUT, "Your role does not allow this.", "Ask a caller with the named role."
)
SETTING_INVALID = declare(
    "SETTING.INVALID.v1", Remedy.FIX_INPUT, "A setting is invalid.", "Correct the named variable."
)
DRILLS_DISABLED = declare(
    "DRILL.DISABLED.v1",
    Remedy.FIX_INPUT,
    "A failure plan was given, but drills are not enabled here.",
    "Use `receipts drill`. Never run a failure plan on an instance that serves.",
)
LEDGER_UNAVAILABLE = declare(
    "LEDGER.UNAVAILABLE.v1",
    Remedy.RETRY,
    "The ledger cannot be reached or stays locked. Nothing was written.",
    "Check the database and repeat the command.",
)
LEDGER_NEWER = declare(
    "LEDGER.NEWER.v1",
    Remedy.STAND_DOWN,
    "The ledger belongs to a later version of this product. Nothing was changed.",
    "Install that version, or name another RECEIPTS_HOME.",
)
LEDGER_LOST = declare(
    "LEDGER.LOST.v1",
    Remedy.LOOK_UP,
    "The ledger is empty, but this data directory has scans, results or answers of earlier jobs.",
    "Restore the ledger from a backup, or move the data directory away and start with an empty one.",
)
LEDGER_OUTCOME_UNKNOWN = declare(
    "LEDGER.OUTCOME_UNKNOWN.v1",
    Remedy.RETRY,
    "The connection to the ledger was lost during a commit. It is not known whether this was written.",
    "Please repeat the command: what was written is found again and nothing is done twice.",
)
HOME_SERVED = declare(
    "HOME.SERVED.v1",
    Remedy.NONE,
    "Another process already serves this data directory.",
    "Use the running instance, or another RECEIPTS_HOME.",
)
SERVER_SILENT = declare(
    "SERVER.SILENT.v1",
    Remedy.RETRY,
    "The web server or the daemon did not start in time.",
    "Read the logs in the dagster folder of the data directory and start again.",
)
DRILL_FAILED_HERE = declare(
    "DRILL.FAILED_HERE.v1", Remedy.RETRY, "A drill made this point fail.", "Nothing to do. It is part of the drill."
)
