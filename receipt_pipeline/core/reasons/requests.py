"""Reasons why a request, or a scan that it names, is refused at acceptance."""

from __future__ import annotations

from receipt_pipeline.core.reasons.registry import Remedy, declare

# Requests: the document itself.
MANIFEST_NOT_JSON = declare(
    "MANIFEST.NOT_JSON.v1",
    Remedy.FIX_INPUT,
    "The document is not strict JSON.",
    "Correct the named place and submit again.",
)
MANIFEST_DUPLICATE_KEY = declare(
    "MANIFEST.DUPLICATE_KEY.v1",
    Remedy.FIX_INPUT,
    "An object names the same key twice.",
    "Keep one of the two and submit again.",
)
MANIFEST_TOO_LARGE = declare(
    "MANIFEST.TOO_LARGE.v1",
    Remedy.FIX_INPUT,
    "The document exceeds a limit on size or count.",
    "Split it and submit the parts.",
)
MANIFEST_ENCODING = declare(
    "MANIFEST.ENCODING.v1",
    Remedy.FIX_INPUT,
    "The document is not readable text in a supported encoding or format.",
    "Save it as UTF-8 JSON, JSON lines or CSV and submit again.",
)
CONTRACT_UNKNOWN = declare(
    "CONTRACT.UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "This contract is not supported.",
    "Use receipt-job/v1 or receipt-batch/v1.",
)
FIELD_MISSING = declare(
    "FIELD.MISSING.v1", Remedy.FIX_INPUT, "A required field is missing.", "Add the named field and submit again."
)
FIELD_UNKNOWN = declare(
    "FIELD.UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "The contract has no such field.",
    "Remove the named field or correct its spelling.",
)
FIELD_INVALID = declare(
    "FIELD.INVALID.v1",
    Remedy.FIX_INPUT,
    "A field has a wrong type, form or range.",
    "Correct the named field and submit again.",
)
ITEMS_EMPTY = declare("ITEMS.EMPTY.v1", Remedy.FIX_INPUT, "The request names no item.", "List at least one scan.")
ITEM_DUPLICATE = declare(
    "ITEM.DUPLICATE_ID.v1", Remedy.FIX_INPUT, "Two items of one job have the same id.", "Give each item a different id."
)
KEY_CONFLICT = declare(
    "KEY.CONFLICT.v1",
    Remedy.FIX_INPUT,
    "The idempotency key already names a different request.",
    "Use a new key, or repeat the first request unchanged.",
)
CUTOFF_PASSED = declare(
    "CUTOFF.PASSED.v1",
    Remedy.FIX_INPUT,
    "The queue deadline is not after the submission.",
    "Set a later reconciliation cutoff or a longer queue age.",
)
LIMIT_TOO_SHORT = declare(
    "LIMIT.TOO_SHORT.v1",
    Remedy.NONE,
    "The requested timeout is very short for this number of items.",
    "Expect the job to time out, or give it more time.",
)
LIMITS_ALIKE = declare(
    "LIMIT.ALL_EQUAL.v1",
    Remedy.NONE,
    "Queue age, processing timeout and retention all have the same value.",
    "Set each of the three limits for its purpose.",
)
RELEASE_UNKNOWN = declare(
    "RELEASE.UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "There is no release or alias with this name.",
    "List them with `receipts release list`.",
)
RELEASE_UNAPPROVED = declare(
    "RELEASE.UNAPPROVED.v1",
    Remedy.FIX_INPUT,
    "The release is not approved.",
    "Approve it with `receipts release approve`, or name another release.",
)
RELEASE_RETIRED = declare(
    "RELEASE.RETIRED.v1",
    Remedy.FIX_INPUT,
    "The release is retired. That is permanent.",
    "Name another release: `receipts release list`.",
)

# Requests: the scans they name.
PATH_OUTSIDE = declare(
    "PATH.OUTSIDE.v1",
    Remedy.FIX_INPUT,
    "A path leads outside the folder of the submission.",
    "Put the scan next to the manifest and use a relative path.",
)
SCAN_MISSING = declare(
    "SCAN.MISSING.v1",
    Remedy.FIX_INPUT,
    "A named scan does not exist.",
    "Put the scan next to the manifest and submit again.",
)
SCAN_UNREADABLE = declare(
    "SCAN.UNREADABLE.v1", Remedy.FIX_INPUT, "A named scan cannot be read.", "Check its permissions and submit again."
)
SCAN_CHANGING = declare(
    "SCAN.CHANGING.v1",
    Remedy.FIX_INPUT,
    "A scan changed while it was read.",
    "Wait until it is complete and submit again.",
)
SCAN_DIGEST = declare(
    "SCAN.DIGEST.v1",
    Remedy.FIX_INPUT,
    "The digest of a scan is not the one that was given.",
    "Send the intended file or correct the digest.",
)
SCAN_SIZE = declare(
    "SCAN.SIZE.v1",
    Remedy.FIX_INPUT,
    "The size of a scan is not the one that was given.",
    "Send the intended file or correct the size.",
)
SCAN_MEDIA_TYPE = declare(
    "SCAN.MEDIA_TYPE.v1",
    Remedy.FIX_INPUT,
    "A scan is not of the media type that was given.",
    "Send the intended file or correct the media type.",
)
SCAN_TOO_LARGE = declare(
    "SCAN.TOO_LARGE.v1",
    Remedy.FIX_INPUT,
    "A scan exceeds the limit on bytes, pixels or pages.",
    "Scan at a lower resolution or split the file.",
)
INBOX_MISPLACED = declare(
    "INBOX.MISPLACED.v1",
    Remedy.FIX_INPUT,
    "The file is not in the folder of a tenant.",
    "Move the file into inbox/<tenant>/.",
)
INBOX_INCOMPLETE = declare(
    "INBOX.INCOMPLETE.v1",
    Remedy.FIX_INPUT,
    "Not all scans of the manifest arrived in time.",
    "Put the missing scans next to the manifest and drop it again.",
)
STORAGE_FULL = declare(
    "STORAGE.FULL.v1",
    Remedy.RETRY,
    "The disk is full. Nothing was accepted or published.",
    "Free some space and repeat.",
)
