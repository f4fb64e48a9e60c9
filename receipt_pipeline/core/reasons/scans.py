"""Reasons about scans in processing, their decisions and the pinned identities."""

from __future__ import annotations

from receipt_pipeline.core.reasons.registry import Remedy, declare

# Scans in processing.
INPUT_GONE = declare(
    "INPUT.GONE.v1", Remedy.FIX_INPUT, "The stored scan no longer exists.", "Submit the scan again under a new key."
)
INPUT_CHANGED = declare(
    "INPUT.CHANGED.v1",
    Remedy.FIX_INPUT,
    "The stored scan was changed after it was accepted.",
    "Submit the scan again under a new key.",
)
SCAN_EMPTY = declare("SCAN.EMPTY.v1", Remedy.FIX_INPUT, "The file is empty.", "Scan the receipt again.")
SCAN_BROKEN = declare(
    "SCAN.BROKEN.v1", Remedy.FIX_INPUT, "The picture is damaged or incomplete.", "Scan the receipt again."
)
SCAN_UNSUPPORTED = declare(
    "SCAN.UNSUPPORTED.v1",
    Remedy.FIX_INPUT,
    "This kind of file is not supported.",
    "Send JPEG, PNG, TIFF, WebP, GIF, HEIC or PDF.",
)
SCAN_ENCRYPTED = declare(
    "SCAN.ENCRYPTED.v1",
    Remedy.FIX_INPUT,
    "The document needs a password.",
    "Save it without a password and submit again.",
)
SCAN_BOMB = declare(
    "SCAN.BOMB.v1",
    Remedy.FIX_INPUT,
    "The file has more pixels or pages than the limit.",
    "Scan at a lower resolution or split the file.",
)
OCR_NO_TEXT = declare("OCR.NO_TEXT.v1", Remedy.REVIEW, "No text was found on any page.", "Look at the scan.")
ENGINE_OCR_UNAVAILABLE = declare(
    "ENGINE.OCR_UNAVAILABLE.v1",
    Remedy.RETRY,
    "The text recognition did not answer.",
    "Nothing to do. It is repeated until all attempts are used.",
)
FEATURES_REFUSED = declare(
    "FEATURES.REFUSED.v1",
    Remedy.REVIEW,
    "The values of this scan are outside of what the risk model was approved for.",
    "Look at the scan.",
)
SEVERAL_RECEIPTS = declare(
    "SCAN.SEVERAL_RECEIPTS.v1",
    Remedy.REVIEW,
    "The file seems to show more than one receipt.",
    "Look at the scan and split it.",
)
TOTAL_UNREAD = declare(
    "FIELD.TOTAL_UNREAD.v1", Remedy.REVIEW, "No total could be read with confidence.", "Look at the scan."
)
TOTAL_AMBIGUOUS = declare(
    "FIELD.TOTAL_AMBIGUOUS.v1",
    Remedy.REVIEW,
    "The printed total can be read in more than one way.",
    "Look at the scan.",
)
DATE_UNREAD = declare("FIELD.DATE_UNREAD.v1", Remedy.REVIEW, "No date could be read.", "Look at the scan.")
DATE_AMBIGUOUS = declare(
    "FIELD.DATE_AMBIGUOUS.v1", Remedy.REVIEW, "The date can be read as day first or month first.", "Look at the scan."
)
CURRENCY_UNKNOWN = declare(
    "FIELD.CURRENCY_UNKNOWN.v1", Remedy.REVIEW, "The currency of the total is not stated.", "Look at the scan."
)
AMOUNT_REFUND = declare(
    "AMOUNT.REFUND.v1",
    Remedy.REVIEW,
    "The total is negative.",
    "Look at the scan. Refunds are never added to purchases.",
)
SUMS_DISAGREE = declare(
    "ARITHMETIC.DISAGREES.v1",
    Remedy.REVIEW,
    "Printed amounts do not add up to the total.",
    "Compare the named amounts on the scan.",
)
RISK_HIGH = declare(
    "RISK.HIGH.v1",
    Remedy.REVIEW,
    "The probability from the risk model is above the limit of the policy.",
    "Look at the listed contributions.",
)
DATE_CONTRADICTED = declare(
    "DATE.CONTRADICTED.v1",
    Remedy.REVIEW,
    "Date, weekday, time, tax or bill number contradict each other.",
    "Compare the date with the listed contributions.",
)
AMOUNT_ODD = declare(
    "AMOUNT.ODD.v1",
    Remedy.REVIEW,
    "An amount is written or paid in an unusual way.",
    "Look at the amounts in the listed contributions.",
)
PICTURE_ALTERED = declare(
    "PICTURE.ALTERED.v1",
    Remedy.REVIEW,
    "Parts of the picture repeat each other or differ from their surroundings.",
    "Look at the amounts and dates in the picture.",
)
OCR_DOUBTFUL = declare(
    "OCR.LOW_CONFIDENCE.v1", Remedy.REVIEW, "The text was read with low confidence.", "Look at the scan."
)
DUPLICATE_BYTES = declare(
    "DUPLICATE.BYTES.v1",
    Remedy.REVIEW,
    "The same file was submitted before.",
    "Compare it with the earlier item that the receipt names.",
)
DUPLICATE_PICTURE = declare(
    "DUPLICATE.PICTURE.v1",
    Remedy.REVIEW,
    "Another scan of the same job shows the same receipt.",
    "Compare it with the earlier item named in `near_duplicate_of`.",
)
DATE_AFTER_SUBMISSION = declare(
    "DATE.AFTER_SUBMISSION.v1",
    Remedy.REVIEW,
    "The receipt is dated after the day on which its job was accepted.",
    "Compare the date on the scan with that day.",
)
DATE_TOO_OLD = declare(
    "DATE.TOO_OLD.v1",
    Remedy.REVIEW,
    "The receipt was older than the policy allows when its job was accepted.",
    "Compare the date on the scan with the limit of the policy.",
)
SHOP_CONTRADICTED = declare(
    "SHOP.CONTRADICTED.v1",
    Remedy.REVIEW,
    "A number of the shop or its goods is invalid or belongs to another place.",
    "Compare company number, tax number, postal code and phone number on the scan.",
)

# Identities.
IDENTITY_MISMATCH = declare(
    "IDENTITY.MISMATCH.v1",
    Remedy.STAND_DOWN,
    "A file of the pinned release does not match its digest.",
    "Restore the file, or submit under an approved release.",
)
IDENTITY_MISSING = declare(
    "IDENTITY.MISSING.v1",
    Remedy.STAND_DOWN,
    "A file of the pinned release does not exist here.",
    "Install the release, or submit under another one.",
)
IDENTITY_RETIRED = declare(
    "IDENTITY.RETIRED.v1",
    Remedy.STAND_DOWN,
    "The pinned release was retired.",
    "Submit again under an approved release.",
)
