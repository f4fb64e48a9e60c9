"""Policy: from what was read and scored to `clear` or `review`, with the reasons, strongest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from receipt_pipeline.chain.artefact import read_artefact
from receipt_pipeline.chain.values import Features, ReadAmount, Reading, ReceiptFields, Risk, Verdict
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.reasons import (
    AMOUNT_ODD,
    AMOUNT_REFUND,
    CURRENCY_UNKNOWN,
    DATE_AFTER_SUBMISSION,
    DATE_AMBIGUOUS,
    DATE_CONTRADICTED,
    DATE_TOO_OLD,
    DATE_UNREAD,
    DUPLICATE_BYTES,
    DUPLICATE_PICTURE,
    IDENTITY_MISMATCH,
    OCR_DOUBTFUL,
    OCR_NO_TEXT,
    PICTURE_ALTERED,
    RISK_HIGH,
    SEVERAL_RECEIPTS,
    SHOP_CONTRADICTED,
    SUMS_DISAGREE,
    TOTAL_AMBIGUOUS,
    TOTAL_UNREAD,
    Reason,
)

POLICY_CONTRACT = "receipt-policy/v1"
STATED_RATE_CONTRACT = "receipt-policy/v2"
SUBMITTED_CONTRACT = "receipt-policy/v3"

REASONS_BY_STRENGTH = (
    DUPLICATE_BYTES,
    OCR_NO_TEXT,
    SEVERAL_RECEIPTS,
    TOTAL_UNREAD,
    TOTAL_AMBIGUOUS,
    DATE_UNREAD,
    DATE_AMBIGUOUS,
    CURRENCY_UNKNOWN,
    AMOUNT_REFUND,
    SUMS_DISAGREE,
    RISK_HIGH,
    OCR_DOUBTFUL,
)

# What the third contract asks of the job that a scan came with, after repeated bytes and before all else.
CIRCUMSTANCE_REASONS = (DUPLICATE_PICTURE, DATE_AFTER_SUBMISSION, DATE_TOO_OLD)
REASONS_BY_STRENGTH_V3 = (DUPLICATE_BYTES, *CIRCUMSTANCE_REASONS, *REASONS_BY_STRENGTH[1:])

# What the second contract adds: which kind of evidence made the risk high.
EVIDENCE_REASONS = (SUMS_DISAGREE, DATE_CONTRADICTED, AMOUNT_ODD, PICTURE_ALTERED)
CODES_OF_CONTRACT: Mapping[str, frozenset[str]] = {
    POLICY_CONTRACT: frozenset(reason.code for reason in REASONS_BY_STRENGTH),
    STATED_RATE_CONTRACT: frozenset(reason.code for reason in (*REASONS_BY_STRENGTH, *EVIDENCE_REASONS)),
    SUBMITTED_CONTRACT: frozenset(
        reason.code for reason in (*REASONS_BY_STRENGTH_V3, *EVIDENCE_REASONS, SHOP_CONTRADICTED)
    ),
}

# Without these a `clear` would say more than was read; no policy can switch them off.
ALWAYS_REVIEWED = frozenset(
    {DUPLICATE_BYTES, OCR_NO_TEXT, SEVERAL_RECEIPTS, TOTAL_UNREAD, TOTAL_AMBIGUOUS, AMOUNT_REFUND}
)


@dataclass(frozen=True, slots=True)
class Policy:
    """An approved policy by the digest of its bytes.

    Attributes:
        review_codes: reason codes that force a review.
        risk_review_ppm: probability of tampering from which an item is reviewed.
        ocr_confidence_min: lowest mean confidence, 0..1, of the lines that hold the decided fields.
        sums_disagree_min: number of failed sums from which the arithmetic counts as disagreeing; under
            `receipt-policy/v1` alone.
        contract: under which the policy decides.
        review_rate_ppm: share of genuine receipts that the limit on the risk sends to review, as it was
            measured on receipts that the model never saw.
        evidence_log_odds_min: from which share in the risk a kind of evidence is named as a reason.
        receipt_age_days_max: how old a receipt may be on the day its job is accepted; 0 for any age.
    """

    revision: str
    name: str
    review_codes: frozenset[str]
    risk_review_ppm: int
    ocr_confidence_min: float
    sums_disagree_min: int
    contract: str = POLICY_CONTRACT
    review_rate_ppm: int = 0
    evidence_log_odds_min: float = 0.0
    receipt_age_days_max: int = 0


def load_policy(source: Path | bytes, expected_revision: str) -> Policy:
    """Load a policy from canonical JSON that must hash to `expected_revision`.

    Raises:
        IdentityMismatch: IDENTITY.MISSING.v1, or IDENTITY.MISMATCH.v1 for other bytes, another
            contract, or a policy that switches off what is always reviewed.
    """
    document = read_artefact(source, expected_digest=expected_revision, artefact="policy")
    contract = str(document.get("contract"))
    if contract not in CODES_OF_CONTRACT:
        raise IdentityMismatch(IDENTITY_MISMATCH, artefact="policy", detail="unknown policy contract")
    codes = frozenset(document["review_codes"])
    if not {reason.code for reason in ALWAYS_REVIEWED} <= codes <= CODES_OF_CONTRACT[contract]:
        raise IdentityMismatch(IDENTITY_MISMATCH, artefact="policy", detail="review codes out of bounds")
    limits: Mapping[str, Any] = document["limits"]
    return Policy(
        revision=expected_revision,
        name=document["name"],
        review_codes=codes,
        risk_review_ppm=int(limits["risk_review_ppm"]),
        ocr_confidence_min=int(limits["ocr_confidence_min_ppm"]) / 1_000_000,
        sums_disagree_min=int(limits.get("sums_disagree_min", 0)),
        contract=contract,
        review_rate_ppm=int(limits.get("review_rate_ppm", 0)),
        evidence_log_odds_min=int(limits.get("evidence_log_odds_min_ppm", 0)) / 1_000_000,
        receipt_age_days_max=int(limits.get("receipt_age_days_max", 0)),
    )


def decide(
    policy: Policy,
    *,
    reading: Reading,
    fields: ReceiptFields,
    features: Features,
    risk: Risk,
    duplicate_bytes: bool,
) -> Verdict:
    """Return `clear` without reasons, or `review` with every reason that applies, strongest first."""
    found = {DUPLICATE_BYTES} if duplicate_bytes else set()
    if reading.lines:
        found.update(field_reasons(fields))
        found.update(_doubts(policy, features=features, risk=risk))
    else:
        # Nothing was read, so nothing that would be said of fields or sums is evidence.
        found.add(OCR_NO_TEXT)
    reasons = tuple(
        reason.code
        for reason in REASONS_BY_STRENGTH
        if reason in found and reason.code in policy.review_codes
    )
    return Verdict(decision=Decision.REVIEW if reasons else Decision.CLEAR, reasons=reasons)


def field_reasons(fields: ReceiptFields) -> Iterator[Reason]:
    """Yield what the fields alone call into question."""
    if fields.several_receipts:
        yield SEVERAL_RECEIPTS
    yield from _total_reasons(fields.total)
    if fields.date is None or (fields.date.iso is None and not fields.date.ambiguous):
        yield DATE_UNREAD
    elif fields.date.ambiguous:
        yield DATE_AMBIGUOUS
    if fields.total is not None and fields.total.currency is None and fields.currency is None:
        yield CURRENCY_UNKNOWN


def _total_reasons(total: ReadAmount | None) -> Iterator[Reason]:
    if total is None:
        yield TOTAL_UNREAD
        return
    if total.ambiguous:
        yield TOTAL_AMBIGUOUS
    if total.minor < 0:
        yield AMOUNT_REFUND


def _doubts(policy: Policy, *, features: Features, risk: Risk) -> Iterator[Reason]:
    """Yield what sums, risk and the text reader's own confidence call into question."""
    if features.values["sums_failed"] >= policy.sums_disagree_min:
        yield SUMS_DISAGREE
    if risk.probability_ppm >= policy.risk_review_ppm:
        yield RISK_HIGH
    if features.values["confidence_decided"] < policy.ocr_confidence_min:
        yield OCR_DOUBTFUL
