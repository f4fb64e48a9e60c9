"""Reasons about ownership, attempts, closure, effects, the account and the doors."""

from __future__ import annotations

from receipt_pipeline.core.reasons.registry import Remedy, declare

# Ownership, attempts and closure.
STALE_LEASE = declare(
    "LEASE.STALE_EPOCH.v1",
    Remedy.STAND_DOWN,
    "a later lease epoch owns the job",
    "nothing; the current owner goes on",
)
NOT_CLAIMABLE = declare(
    "CLAIM.NOT_READY.v1",
    Remedy.STAND_DOWN,
    "the job is not ready to be claimed",
    "nothing; it is owned, waiting, or closed",
)
WORKER_LOST = declare(
    "WORKER.LOST.v1",
    Remedy.REVIEW,
    "the worker was lost while this item was in work",
    "look at the scan; it may end its worker",
)
QUEUE_AGE_REACHED = declare(
    "QUEUE.AGE_REACHED.v1",
    Remedy.FIX_INPUT,
    "the job waited longer than its queue deadline",
    "submit again under a new key if the answer is still of use",
)
NO_CAPABLE_WORKER = declare(
    "WORKER.NONE_CAPABLE.v1",
    Remedy.RETRY,
    "no live worker carries the pinned release",
    "start a worker that carries it",
)
CANCELED_BY_CALLER = declare(
    "JOB.CANCELED.v1",
    Remedy.NONE,
    "the job was canceled on request",
    "submit again under a new key if it is wanted after all",
)
SUPERSEDED_BY_JOB = declare(
    "JOB.SUPERSEDED.v1",
    Remedy.NONE,
    "another job replaces this one",
    "follow the job that replaces it",
)
ATTEMPTS_EXHAUSTED = declare(
    "ATTEMPTS.EXHAUSTED.v1",
    Remedy.REVIEW,
    "the bounded attempts are spent",
    "read the investigation; then submit the unresolved scans under a new key",
)
PROCESSING_TIMEOUT = declare(
    "PROCESSING.TIMEOUT.v1",
    Remedy.REVIEW,
    "the processing timeout overtook the job",
    "submit the unresolved scans under a new key",
)
CUTOFF_REACHED = declare(
    "CUTOFF.REACHED.v1",
    Remedy.REVIEW,
    "the reconciliation cutoff overtook the job",
    "submit the unresolved scans under a new key",
)
ITEM_OVERTAKEN = declare(
    "ITEM.OVERTAKEN.v1",
    Remedy.REVIEW,
    "the item was begun but not committed before the limit",
    "submit the unresolved scans under a new key",
)
ALL_REJECTED = declare(
    "ITEMS.ALL_REJECTED.v1",
    Remedy.FIX_INPUT,
    "every item was refused by validation",
    "correct the scans that the receipt names and submit again",
)
UPLOAD_FAILED = declare(
    "UPLOAD.FAILED.v1",
    Remedy.RETRY,
    "the result object could not be stored",
    "it is tried again within the attempt bound; outcomes are kept",
)
UPLOAD_UNKNOWN = declare(
    "UPLOAD.UNKNOWN.v1",
    Remedy.LOOK_UP,
    "the result's upload may or may not have happened",
    "look the object up before anything is repeated",
)
RESULT_MISMATCH = declare(
    "RESULT.MISMATCH.v1",
    Remedy.REVIEW,
    "the stored result does not hash to its record",
    "read the investigation; the object is not served",
)
RESULT_MISSING = declare(
    "RESULT.MISSING.v1",
    Remedy.REVIEW,
    "the record says succeeded but its object is gone",
    "read the investigation; restore the object or withdraw the result",
)
OBJECT_UNREADABLE = declare(
    "OBJECT.UNREADABLE.v1",
    Remedy.RETRY,
    "the object store cannot be read now; whether the object is there is not known",
    "check the store's disk and permissions, then repeat",
)
RESULT_QUARANTINED = declare(
    "RESULT.QUARANTINED.v1",
    Remedy.REVIEW,
    "divergent outputs of this job are kept and none is served",
    "resolve the investigation with keep <digest> or withdraw",
)
QUARANTINE_DIGEST_UNKNOWN = declare(
    "QUARANTINE.DIGEST_UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "no open quarantine of the job lists this digest",
    "name one of the digests that the investigation's evidence lists",
)
QUARANTINE_NOT_HELD = declare(
    "QUARANTINE.OUTPUT_NOT_HELD.v1",
    Remedy.REVIEW,
    "the output to keep is known by its digest only, or is not what the ledger committed",
    "keep the digest that the ledger committed, or withdraw and submit the scans again",
)
RESULT_WITHDRAWN = declare(
    "RESULT.WITHDRAWN.v1",
    Remedy.NONE,
    "the result was withdrawn by a recorded decision",
    "submit the scans again under a new key",
)
RESULT_NOT_READY = declare(
    "RESULT.NOT_READY.v1",
    Remedy.RETRY,
    "the job has no result yet: accepted is not decided",
    "ask again after the job is terminal",
)
RESULT_NONE = declare(
    "RESULT.NONE.v1",
    Remedy.NONE,
    "the job closed without a result object",
    "read its terminal class and reason",
)
RESULT_RETIRED = declare(
    "RESULT.RETENTION_PASSED.v1",
    Remedy.NONE,
    "the result was purged after its retention",
    "the completion receipt stays; submit again if the payload is needed",
)
SCAN_RETIRED = declare(
    "SCAN.RETENTION_PASSED.v1",
    Remedy.NONE,
    "a scan that no job needs any more was removed",
    "nothing; hand the scan in again if it is wanted",
)
STATE_REFUSES = declare(
    "STATE.REFUSES.v1",
    Remedy.NONE,
    "the job's state does not permit this",
    "see `receipts status` for the safe next action",
)

# Effects and delivery.
NOTIFICATION_DROPPED = declare(
    "NOTIFICATION.DROPPED.v1",
    Remedy.LOOK_UP,
    "the notification was lost on its way",
    "nothing; the consumer reconciles from the ledger",
)
NOTIFICATION_FAILED = declare(
    "NOTIFICATION.FAILED.v1",
    Remedy.RETRY,
    "the channel refused the notification",
    "it is tried again within its bound",
)
NOTIFICATION_UNKNOWN = declare(
    "NOTIFICATION.UNKNOWN.v1",
    Remedy.LOOK_UP,
    "a notification may or may not have arrived and its channel gives no answer",
    "ask the receiver by the message id and record the answer; it is never sent again blindly",
)
EVENT_CONFLICT = declare(
    "EVENT.CONFLICT.v1",
    Remedy.REVIEW,
    "a delivery carries another result than the ledger's",
    "read the quarantine of the job",
)
EVENT_LATE = declare(
    "EVENT.LATE.v1",
    Remedy.NONE,
    "an event arrived after the job had moved on",
    "nothing; state comes from the ledger, never from an event",
)

# Investigations and the account.
INVESTIGATION_UNKNOWN_OWNER = declare(
    "INVESTIGATION.OWNER_INACTIVE.v1",
    Remedy.FIX_INPUT,
    "the owner is not an active principal",
    "name an active principal",
)
INVESTIGATION_CLOSED = declare(
    "INVESTIGATION.CLOSED.v1",
    Remedy.NONE,
    "the investigation is already resolved",
    "nothing; its resolution stands",
)
TERMINAL_MISSING = declare(
    "TERMINAL.MISSING.v1",
    Remedy.REVIEW,
    "the job is past its own deadlines, or held, and has no terminal record",
    "read the job's attempts and holds; `receipts reconcile` closes what can be closed",
)
TERMINAL_CONFLICT = declare(
    "TERMINAL.CONFLICT.v1",
    Remedy.REVIEW,
    "the job's row and its journal do not tell of one terminal record",
    "compare row and events; restore the ledger from its backup where it was edited",
)
ITEMS_UNBALANCED = declare(
    "ITEMS.UNBALANCED.v1",
    Remedy.REVIEW,
    "the item classes do not sum to the accepted scope or contradict the terminal class",
    "compare the items with the accepted event; restore the ledger where it was edited",
)
ATTEMPTS_BEYOND_BUDGET = declare(
    "ATTEMPTS.BEYOND_BUDGET.v1",
    Remedy.REVIEW,
    "a job was tried more often than its bounds allow",
    "read its attempts; find out who claims it outside the product",
)
EFFECT_GAP = declare(
    "EFFECT.GAP.v1",
    Remedy.LOOK_UP,
    "an effect is missing, overdue, or not in the ledger",
    "look the effect up where it would be; it settles once it is recorded",
)
OBJECT_UNEXPLAINED = declare(
    "OBJECT.UNEXPLAINED.v1",
    Remedy.REVIEW,
    "a stored object is named by nothing in the ledger",
    "find out who wrote it; resolve the investigation to keep it, or remove the object",
)
REPORT_UNREADABLE = declare(
    "REPORT.UNREADABLE.v1",
    Remedy.RETRY,
    "the published report cannot be opened",
    "it is set aside and rebuilt from the ledger by the next publication",
)
REPORT_REBUILT = declare(
    "REPORT.REBUILT.v1",
    Remedy.REVIEW,
    "export or report were damaged, changed by somebody, or of another ledger",
    "it is kept in set-aside/ and all was read anew from the ledger; look what happened to the file",
)
REPORT_BUSY = declare(
    "REPORT.BUSY.v1",
    Remedy.RETRY,
    "another publication of the report is still at work",
    "wait for it and repeat; the published report stays readable",
)
REPORT_SEVERAL_TENANTS = declare(
    "REPORT.SEVERAL_TENANTS.v1",
    Remedy.NONE,
    "the published account covers other tenants as well",
    "ask without --published: that account is of your tenant alone",
)
REPORT_SQL = declare(
    "REPORT.SQL.v1",
    Remedy.FIX_INPUT,
    "the query was refused by DuckDB",
    "correct the query; the report is read-only",
)

# Doors and infrastructure.
NOT_FOUND = declare(
    "NOT_FOUND.v1",
    Remedy.FIX_INPUT,
    "no such thing for you",
    "check the id and the tenant you act for",
)
NOT_PERMITTED = declare(
    "NOT_PERMITTED.v1",
    Remedy.FIX_INPUT,
    "your role does not permit this",
    "ask a principal with the named role",
)
SETTING_INVALID = declare(
    "SETTING.INVALID.v1",
    Remedy.FIX_INPUT,
    "a setting cannot be used",
    "correct the named variable",
)
DRILLS_DISABLED = declare(
    "DRILL.DISABLED.v1",
    Remedy.FIX_INPUT,
    "a failure plan was given but drills are not enabled here",
    "run it through `receipts drill`, never against a home that serves",
)
LEDGER_UNAVAILABLE = declare(
    "LEDGER.UNAVAILABLE.v1",
    Remedy.RETRY,
    "the ledger cannot be reached or stays locked; nothing was written",
    "check the database and repeat the command",
)
LEDGER_NEWER = declare(
    "LEDGER.NEWER.v1",
    Remedy.STAND_DOWN,
    "the ledger was made by a later version of this product; nothing was changed",
    "install the version that made the ledger, or name another RECEIPTS_HOME",
)
LEDGER_LOST = declare(
    "LEDGER.LOST.v1",
    Remedy.LOOK_UP,
    "the ledger has no record at all, while scans, results or answers of earlier jobs stand in this home",
    "restore the ledger from its backup; or begin deliberately without it: `receipts afresh --yes` sets"
    " what stands there aside",
)
LEDGER_IN_USE = declare(
    "LEDGER.IN_USE.v1",
    Remedy.STAND_DOWN,
    "the ledger has records, so this home is not begun anew; nothing was moved",
    "go on with it, or name another RECEIPTS_HOME",
)
LEDGER_OUTCOME_UNKNOWN = declare(
    "LEDGER.OUTCOME_UNKNOWN.v1",
    Remedy.RETRY,
    "the connection to the ledger was lost while it committed; whether this was written is not known",
    "repeat the command: what was written is found again and nothing is done twice",
)
HOME_SERVED = declare(
    "HOME.SERVED.v1",
    Remedy.NONE,
    "another process already serves this home",
    "use the running one, or another RECEIPTS_HOME",
)
SERVER_SILENT = declare(
    "SERVER.SILENT.v1",
    Remedy.RETRY,
    "the web server or daemon did not come up in time",
    "read the logs in the home's dagster folder and start again",
)
DRILL_FAILED_HERE = declare(
    "DRILL.FAILED_HERE.v1",
    Remedy.RETRY,
    "a drill made this point fail",
    "nothing; it is part of the drill",
)
