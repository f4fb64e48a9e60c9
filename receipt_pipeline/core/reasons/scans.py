"""Reasons about scans in processing, their decisions and the pinned identities."""

from __future__ import annotations

from receipt_pipeline.core.reasons.registry import Remedy, declare

# Scans in processing.
INPUT_GONE = declare(
    "INPUT.GONE.v1",
    Remedy.FIX_INPUT,
    "the stored scan is no longer there",
    "submit the scan again under a new key",
)
INPUT_CHANGED = declare(
    "INPUT.CHANGED.v1",
    Remedy.FIX_INPUT,
    "the stored scan no longer hashes to its pin",
    "submit the scan again under a new key",
)
SCAN_EMPTY = declare(
    "SCAN.EMPTY.v1",
    Remedy.FIX_INPUT,
    "the file holds no bytes",
    "scan the receipt again",
)
SCAN_BROKEN = declare(
    "SCAN.BROKEN.v1",
    Remedy.FIX_INPUT,
    "the picture is damaged or cut short",
    "scan the receipt again",
)
SCAN_UNSUPPORTED = declare(
    "SCAN.UNSUPPORTED.v1",
    Remedy.FIX_INPUT,
    "the file is of no supported kind",
    "send JPEG, PNG, TIFF, WebP, GIF, HEIC or PDF",
)
SCAN_ENCRYPTED = declare(
    "SCAN.ENCRYPTED.v1",
    Remedy.FIX_INPUT,
    "the document asks for a password",
    "save it without a password and submit again",
)
SCAN_BOMB = declare(
    "SCAN.BOMB.v1",
    Remedy.FIX_INPUT,
    "the file claims more pixels or pages than the limit",
    "scan at a lower resolution or split the file",
)
OCR_NO_TEXT = declare(
    "OCR.NO_TEXT.v1",
    Remedy.REVIEW,
    "no text was found on any page",
    "look at the scan",
)
ENGINE_OCR_UNAVAILABLE = declare(
    "ENGINE.OCR_UNAVAILABLE.v1",
    Remedy.RETRY,
    "the text reader gave no answer",
    "it is tried again within the attempt bound",
)
FEATURES_REFUSED = declare(
    "FEATURES.REFUSED.v1",
    Remedy.REVIEW,
    "the reading does not satisfy the feature contract",
    "look at the scan; its values lie outside what the model was approved for",
)
SEVERAL_RECEIPTS = declare(
    "SCAN.SEVERAL_RECEIPTS.v1",
    Remedy.REVIEW,
    "more than one shop receipt seems to be in the file",
    "look at the scan and split it",
)
TOTAL_UNREAD = declare(
    "FIELD.TOTAL_UNREAD.v1",
    Remedy.REVIEW,
    "no total could be read with confidence",
    "look at the scan",
)
TOTAL_AMBIGUOUS = declare(
    "FIELD.TOTAL_AMBIGUOUS.v1",
    Remedy.REVIEW,
    "the printed total can be read in more than one way",
    "look at the scan",
)
DATE_UNREAD = declare(
    "FIELD.DATE_UNREAD.v1",
    Remedy.REVIEW,
    "no date could be read",
    "look at the scan",
)
DATE_AMBIGUOUS = declare(
    "FIELD.DATE_AMBIGUOUS.v1",
    Remedy.REVIEW,
    "the date can be read day first or month first",
    "look at the scan",
)
CURRENCY_UNKNOWN = declare(
    "FIELD.CURRENCY_UNKNOWN.v1",
    Remedy.REVIEW,
    "the currency of the total is not stated",
    "look at the scan",
)
AMOUNT_REFUND = declare(
    "AMOUNT.REFUND.v1",
    Remedy.REVIEW,
    "the total is negative",
    "look at the scan; a refund is never summed as a purchase",
)
SUMS_DISAGREE = declare(
    "ARITHMETIC.DISAGREES.v1",
    Remedy.REVIEW,
    "printed amounts do not add up to the total",
    "compare the named amounts on the scan",
)
RISK_HIGH = declare(
    "RISK.HIGH.v1",
    Remedy.REVIEW,
    "the risk model's probability is above the policy's limit",
    "look at the listed contributions",
)
DATE_CONTRADICTED = declare(
    "DATE.CONTRADICTED.v1",
    Remedy.REVIEW,
    "date, weekday, time, tax or number of the bill contradict each other",
    "compare the date with the listed contributions",
)
AMOUNT_ODD = declare(
    "AMOUNT.ODD.v1",
    Remedy.REVIEW,
    "an amount is written or paid as none of its kind is",
    "look at the amounts that the listed contributions name",
)
PICTURE_ALTERED = declare(
    "PICTURE.ALTERED.v1",
    Remedy.REVIEW,
    "parts of the picture repeat each other or differ from what surrounds them",
    "look at the amounts and dates in the picture",
)
OCR_DOUBTFUL = declare(
    "OCR.LOW_CONFIDENCE.v1",
    Remedy.REVIEW,
    "the text was read with low confidence",
    "look at the scan",
)
DUPLICATE_BYTES = declare(
    "DUPLICATE.BYTES.v1",
    Remedy.REVIEW,
    "the same bytes were submitted before",
    "compare with the earlier item that the receipt names",
)
DUPLICATE_PICTURE = declare(
    "DUPLICATE.PICTURE.v1",
    Remedy.REVIEW,
    "another scan of the same job shows the same receipt",
    "compare with the earlier item that the outcome names as `near_duplicate_of`",
)
DATE_AFTER_SUBMISSION = declare(
    "DATE.AFTER_SUBMISSION.v1",
    Remedy.REVIEW,
    "the receipt is dated after the day on which its job was accepted",
    "compare the date on the scan with that day",
)
DATE_TOO_OLD = declare(
    "DATE.TOO_OLD.v1",
    Remedy.REVIEW,
    "the receipt was older than the policy allows when its job was accepted",
    "compare the date on the scan with the limit of the policy",
)
SHOP_CONTRADICTED = declare(
    "SHOP.CONTRADICTED.v1",
    Remedy.REVIEW,
    "a number of the shop or of its goods fails its own check or names another place",
    "compare company number, tax number, postcode and telephone on the scan",
)

# Identities.
IDENTITY_MISMATCH = declare(
    "IDENTITY.MISMATCH.v1",
    Remedy.STAND_DOWN,
    "a pinned artefact does not match its digest",
    "restore the artefact, or submit under an approved release",
)
IDENTITY_MISSING = declare(
    "IDENTITY.MISSING.v1",
    Remedy.STAND_DOWN,
    "a pinned artefact does not exist here",
    "install the release, or submit under another",
)
IDENTITY_RETIRED = declare(
    "IDENTITY.RETIRED.v1",
    Remedy.STAND_DOWN,
    "the pinned release was retired",
    "submit again under an approved release",
)
