"""Reasons why a request, or a scan that it names, is refused at acceptance."""

from __future__ import annotations

from receipt_pipeline.core.reasons.registry import Remedy, declare

# Requests: the document itself.
MANIFEST_NOT_JSON = declare(
    "MANIFEST.NOT_JSON.v1",
    Remedy.FIX_INPUT,
    "the document is not strict JSON",
    "correct the named place and submit again",
)
MANIFEST_DUPLICATE_KEY = declare(
    "MANIFEST.DUPLICATE_KEY.v1",
    Remedy.FIX_INPUT,
    "an object names the same key twice",
    "keep one of the two and submit again",
)
MANIFEST_TOO_LARGE = declare(
    "MANIFEST.TOO_LARGE.v1",
    Remedy.FIX_INPUT,
    "the document exceeds a size or count limit",
    "split it and submit the parts",
)
MANIFEST_ENCODING = declare(
    "MANIFEST.ENCODING.v1",
    Remedy.FIX_INPUT,
    "the document is not readable text of a supported encoding",
    "save it as UTF-8 and submit again",
)
CONTRACT_UNKNOWN = declare(
    "CONTRACT.UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "the contract is not one this product serves",
    "use receipt-job/v1 or receipt-batch/v1",
)
FIELD_MISSING = declare(
    "FIELD.MISSING.v1",
    Remedy.FIX_INPUT,
    "a required field is absent",
    "add the named field and submit again",
)
FIELD_UNKNOWN = declare(
    "FIELD.UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "the contract has no such field",
    "remove the named field or correct its spelling",
)
FIELD_INVALID = declare(
    "FIELD.INVALID.v1",
    Remedy.FIX_INPUT,
    "a field has a wrong type, form or range",
    "correct the named field and submit again",
)
ITEMS_EMPTY = declare(
    "ITEMS.EMPTY.v1",
    Remedy.FIX_INPUT,
    "the request names no item",
    "list at least one scan",
)
ITEM_DUPLICATE = declare(
    "ITEM.DUPLICATE_ID.v1",
    Remedy.FIX_INPUT,
    "two items of one job carry the same id",
    "give each item its own id",
)
KEY_CONFLICT = declare(
    "KEY.CONFLICT.v1",
    Remedy.FIX_INPUT,
    "the idempotency key already names a different request",
    "use a new key, or repeat the first request unchanged",
)
CUTOFF_PASSED = declare(
    "CUTOFF.PASSED.v1",
    Remedy.FIX_INPUT,
    "the queue deadline would not lie after submission",
    "give a later reconciliation cutoff or a longer queue age",
)
LIMIT_TOO_SHORT = declare(
    "LIMIT.TOO_SHORT.v1",
    Remedy.NONE,
    "an explicit timeout can hardly be met for so many items",
    "expect the job to be overtaken, or give it more time",
)
LIMITS_ALIKE = declare(
    "LIMIT.ALL_EQUAL.v1",
    Remedy.NONE,
    "queue age, processing and retention carry one shared value",
    "set the three limits from their own purposes",
)
RELEASE_UNKNOWN = declare(
    "RELEASE.UNKNOWN.v1",
    Remedy.FIX_INPUT,
    "no release or alias of that name",
    "see `receipts release list`",
)
RELEASE_UNAPPROVED = declare(
    "RELEASE.UNAPPROVED.v1",
    Remedy.FIX_INPUT,
    "the release is not approved",
    "have it approved with `receipts release approve`, or name another",
)
RELEASE_RETIRED = declare(
    "RELEASE.RETIRED.v1",
    Remedy.FIX_INPUT,
    "the release was retired, and stays so",
    "name another release; see `receipts release list`",
)

# Requests: the scans they name.
PATH_OUTSIDE = declare(
    "PATH.OUTSIDE.v1",
    Remedy.FIX_INPUT,
    "a path leads outside the submission's folder",
    "put the scan beside the manifest and name it relatively",
)
SCAN_MISSING = declare(
    "SCAN.MISSING.v1",
    Remedy.FIX_INPUT,
    "a named scan is not there",
    "put the scan beside the manifest and submit again",
)
SCAN_UNREADABLE = declare(
    "SCAN.UNREADABLE.v1",
    Remedy.FIX_INPUT,
    "a named scan cannot be read",
    "check its permissions and submit again",
)
SCAN_CHANGING = declare(
    "SCAN.CHANGING.v1",
    Remedy.FIX_INPUT,
    "a scan changed while it was read",
    "wait until it is complete and submit again",
)
SCAN_DIGEST = declare(
    "SCAN.DIGEST.v1",
    Remedy.FIX_INPUT,
    "a scan does not hash to the digest given",
    "send the intended bytes or correct the digest",
)
SCAN_SIZE = declare(
    "SCAN.SIZE.v1",
    Remedy.FIX_INPUT,
    "a scan has another size than given",
    "send the intended bytes or correct the size",
)
SCAN_MEDIA_TYPE = declare(
    "SCAN.MEDIA_TYPE.v1",
    Remedy.FIX_INPUT,
    "a scan is of another kind than the media type given",
    "send the intended bytes or correct the media type",
)
SCAN_TOO_LARGE = declare(
    "SCAN.TOO_LARGE.v1",
    Remedy.FIX_INPUT,
    "a scan exceeds the limit on bytes, pixels or pages",
    "scan at a lower resolution or split the file",
)
INBOX_MISPLACED = declare(
    "INBOX.MISPLACED.v1",
    Remedy.FIX_INPUT,
    "only folders of a tenant are read",
    "move the file into inbox/<tenant>/",
)
INBOX_INCOMPLETE = declare(
    "INBOX.INCOMPLETE.v1",
    Remedy.FIX_INPUT,
    "the manifest's scans did not all arrive within the limit",
    "put the missing scans beside the manifest and drop it again",
)
STORAGE_FULL = declare(
    "STORAGE.FULL.v1",
    Remedy.RETRY,
    "the disk is full; nothing was accepted or published",
    "free space and repeat",
)
