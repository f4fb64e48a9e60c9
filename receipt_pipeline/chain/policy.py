"""Policy: from what was read and scored to `clear` or `review`, with the reasons, strongest first."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.chain.features.dates import sale_day
from receipt_pipeline.chain.features.table import EVIDENCE_OF
from receipt_pipeline.chain.near_duplicates import ScanPrint, find_near_duplicate, new_scan_print
from receipt_pipeline.chain.values import DecodedScan, Features, PageText, ReadAmount, ReceiptFields, Risk, Verdict
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.items import Decision, ItemContext
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

POLICY_CONTRACT = "receipt-policy/v3"
# A shop's calendar may be a day ahead of UTC, in which jobs are accepted.
AHEAD_DAYS_MAX = 1
PPM = 1_000_000

# All reasons but a high risk and its evidence, which come last.
REASONS_BY_STRENGTH = (
    DUPLICATE_BYTES,
    DUPLICATE_PICTURE,
    DATE_AFTER_SUBMISSION,
    DATE_TOO_OLD,
    OCR_NO_TEXT,
    SEVERAL_RECEIPTS,
    TOTAL_UNREAD,
    TOTAL_AMBIGUOUS,
    DATE_UNREAD,
    DATE_AMBIGUOUS,
    CURRENCY_UNKNOWN,
    AMOUNT_REFUND,
    OCR_DOUBTFUL,
)
EVIDENCE_REASONS = (SUMS_DISAGREE, DATE_CONTRADICTED, AMOUNT_ODD, PICTURE_ALTERED, SHOP_CONTRADICTED)
REVIEW_CODES = frozenset(reason.code for reason in (*REASONS_BY_STRENGTH, RISK_HIGH, *EVIDENCE_REASONS))
# Without these a `clear` would say more than was read; no policy can switch them off.
ALWAYS_REVIEWED = frozenset(
    reason.code
    for reason in (*(DUPLICATE_BYTES, OCR_NO_TEXT, SEVERAL_RECEIPTS), *(TOTAL_UNREAD, TOTAL_AMBIGUOUS, AMOUNT_REFUND))
)


@dataclass(frozen=True, slots=True)
class Policy:
    """An approved policy by the digest of its bytes.

    Attributes:
        review_codes: reason codes that force a review.
        risk_review_ppm: probability of tampering from which an item is reviewed.
        review_rate_ppm: share of genuine receipts that this limit sends to review, as it was measured on
            receipts that the model never saw.
        ocr_confidence_min: lowest mean confidence, 0..1, of the lines that hold the decided fields.
        evidence_log_odds_min: from which share in the risk a kind of evidence is named as a reason.
        receipt_age_days_max: how old a receipt may be on the day its job is accepted; 0 for any age.
    """

    revision: str
    name: str
    review_codes: frozenset[str]
    risk_review_ppm: int
    review_rate_ppm: int
    ocr_confidence_min: float
    evidence_log_odds_min: float
    receipt_age_days_max: int

    @classmethod
    def from_document(cls, document: Mapping[str, Any], *, revision: str) -> Policy:
        """Read a policy from its JSON.

        Raises:
            IdentityMismatch: IDENTITY.MISMATCH.v1 for another contract, or for a policy that switches off
                what is always reviewed.
        """
        if document.get("contract") != POLICY_CONTRACT:
            raise IdentityMismatch(IDENTITY_MISMATCH, artefact="policy", detail="unknown policy contract")
        codes = frozenset(document["review_codes"])
        if not ALWAYS_REVIEWED <= codes <= REVIEW_CODES:
            raise IdentityMismatch(IDENTITY_MISMATCH, artefact="policy", detail="review codes out of bounds")
        limits: Mapping[str, Any] = document["limits"]
        return cls(
            revision=revision,
            name=document["name"],
            review_codes=codes,
            risk_review_ppm=int(limits["risk_review_ppm"]),
            review_rate_ppm=int(limits["review_rate_ppm"]),
            ocr_confidence_min=int(limits["ocr_confidence_min_ppm"]) / PPM,
            evidence_log_odds_min=int(limits["evidence_log_odds_min_ppm"]) / PPM,
            receipt_age_days_max=int(limits["receipt_age_days_max"]),
        )


@dataclass(frozen=True, slots=True)
class JobSituation:
    """One scan in its job: the day of acceptance, the scan's own print, the item that it repeats."""

    accepted_on: dt.date | None = None
    scan_print: ScanPrint | None = None
    near_duplicate_of: str | None = None

    def evidence(self) -> dict[str, Any]:
        """Return what the outcome keeps of it, for people and for the items after it; absent what is none."""
        own = {} if self.scan_print is None else {"scan_print": self.scan_print.as_document()}
        other = {} if self.near_duplicate_of is None else {"near_duplicate_of": self.near_duplicate_of}
        return {**own, **other}


def situation_in_job(
    scan: DecodedScan, page_text: PageText, fields: ReceiptFields, context: ItemContext
) -> JobSituation:
    """Compare one scan with the items of its job before it, whose outcomes are final."""
    own = new_scan_print(scan, page_text)
    return JobSituation(
        accepted_on=None if context.accepted_at is None else context.accepted_at.date(),
        scan_print=own,
        near_duplicate_of=None if own is None else find_near_duplicate(own, fields, context.earlier),
    )


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """All that a decision is made from."""

    page_text: PageText
    fields: ReceiptFields
    features: Features
    risk: Risk
    duplicate_bytes: bool
    situation: JobSituation


def decide(case: PolicyCase, policy: Policy) -> Verdict:
    """Return `clear` without reasons, or `review` with every reason that applies.

    Doubts about what was read come first, strongest first; then the risk, and after it each kind of
    evidence that it comes from, heaviest first.
    """
    found = {*_situation_reasons(case, policy)}
    if case.page_text.lines:
        found.update(_field_reasons(case.fields))
        if case.features.values["confidence_decided"] < policy.ocr_confidence_min:
            found.add(OCR_DOUBTFUL)
    else:
        # Nothing was read, so nothing that would be said of fields or sums is evidence.
        found.add(OCR_NO_TEXT)
    ordered = [reason for reason in REASONS_BY_STRENGTH if reason in found]
    if case.page_text.lines and case.risk.probability_ppm >= policy.risk_review_ppm:
        ordered += [RISK_HIGH, *evidence_by_weight(case.risk, log_odds_min=policy.evidence_log_odds_min)]
    reasons = tuple(reason.code for reason in ordered if reason.code in policy.review_codes)
    return Verdict(decision=Decision.REVIEW if reasons else Decision.CLEAR, reasons=reasons)


def evidence_by_weight(risk: Risk, *, log_odds_min: float) -> Iterator[Reason]:
    """Yield the kinds of evidence whose contributions together reach the limit, heaviest first."""
    weights: dict[Reason, float] = {}
    for name, log_odds in risk.contributions:
        reason = EVIDENCE_OF.get(name)
        if reason is not None:
            weights[reason] = weights.get(reason, 0.0) + log_odds
    ranked = sorted(weights.items(), key=lambda pair: (-pair[1], pair[0].code))
    yield from (reason for reason, weight in ranked if weight > 0 and weight >= log_odds_min)


def _situation_reasons(case: PolicyCase, policy: Policy) -> Iterator[Reason]:
    """Yield what the job calls into question: a repeated receipt, and its date against the acceptance."""
    if case.duplicate_bytes:
        yield DUPLICATE_BYTES
    if case.situation.near_duplicate_of is not None:
        yield DUPLICATE_PICTURE
    sale = sale_day(case.fields)
    if sale is None or case.situation.accepted_on is None:
        return
    age_days = (case.situation.accepted_on - sale).days
    if age_days < -AHEAD_DAYS_MAX:
        yield DATE_AFTER_SUBMISSION
    if policy.receipt_age_days_max and age_days > policy.receipt_age_days_max:
        yield DATE_TOO_OLD


def _field_reasons(fields: ReceiptFields) -> Iterator[Reason]:
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
