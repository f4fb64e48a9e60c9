"""Policy of the third contract: beside what was read, what the job that a scan came with says of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.chain.features_dates import sale_day
from receipt_pipeline.chain.features_v3 import EVIDENCE_OF_V3
from receipt_pipeline.chain.likeness import ScanPrint, first_alike, print_of
from receipt_pipeline.chain.policy import REASONS_BY_STRENGTH_V3, Policy
from receipt_pipeline.chain.policy_rated import decide_rated
from receipt_pipeline.chain.values import DecodedScan, Features, Reading, ReceiptFields, Risk, Verdict
from receipt_pipeline.core.items import ItemContext
from receipt_pipeline.core.reasons import DATE_AFTER_SUBMISSION, DATE_TOO_OLD, DUPLICATE_PICTURE, Reason

# A shop's calendar may be a day ahead of UTC, in which jobs are accepted.
AHEAD_DAYS_MAX = 1


@dataclass(frozen=True, slots=True)
class Standing:
    """How one scan stands in its job: the day of acceptance, its own print, the item that it repeats."""

    accepted_on: dt.date | None
    scan_print: ScanPrint | None
    near_duplicate_of: str | None

    def evidence(self) -> dict[str, Any]:
        """Return what the outcome keeps of it, for people and for the items after it; absent what is none."""
        own = {} if self.scan_print is None else {"scan_print": self.scan_print.as_document()}
        other = {} if self.near_duplicate_of is None else {"near_duplicate_of": self.near_duplicate_of}
        return {**own, **other}


def stand(scan: DecodedScan, reading: Reading, fields: ReceiptFields, submitted: ItemContext) -> Standing:
    """Place one scan in its job; it is compared with the items before it alone, whose outcomes are final."""
    own = print_of(scan, reading)
    return Standing(
        accepted_on=None if submitted.accepted_at is None else submitted.accepted_at.date(),
        scan_print=own,
        near_duplicate_of=None if own is None else first_alike(own, fields, submitted.earlier),
    )


def decide_submitted(
    policy: Policy,
    *,
    reading: Reading,
    fields: ReceiptFields,
    features: Features,
    risk: Risk,
    duplicate_bytes: bool,
    standing: Standing,
    evidence_of: Mapping[str, Reason] = EVIDENCE_OF_V3,
) -> Verdict:
    """Return `clear` without reasons, or `review` with every reason that applies, strongest first.

    `evidence_of` is the kind of evidence that each feature of the chain is.
    """
    return decide_rated(
        policy,
        reading=reading,
        fields=fields,
        features=features,
        risk=risk,
        duplicate_bytes=duplicate_bytes,
        circumstances=circumstances(policy, fields, standing),
        by_strength=REASONS_BY_STRENGTH_V3,
        evidence_of=evidence_of,
    )


def circumstances(policy: Policy, fields: ReceiptFields, standing: Standing) -> Iterator[Reason]:
    """Yield what the job calls into question: a repeated receipt, and its date against the acceptance."""
    if standing.near_duplicate_of is not None:
        yield DUPLICATE_PICTURE
    sale = sale_day(fields)
    if sale is None or standing.accepted_on is None:
        return
    age_days = (standing.accepted_on - sale).days
    if age_days < -AHEAD_DAYS_MAX:
        yield DATE_AFTER_SUBMISSION
    if policy.receipt_age_days_max and age_days > policy.receipt_age_days_max:
        yield DATE_TOO_OLD
