"""Policy of the second contract: a stated review rate, and the evidence behind a high risk by its weight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from receipt_pipeline.chain.features_v2 import EVIDENCE_OF
from receipt_pipeline.chain.policy import REASONS_BY_STRENGTH, Policy, field_reasons
from receipt_pipeline.chain.values import Features, Reading, ReceiptFields, Risk, Verdict
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.reasons import DUPLICATE_BYTES, OCR_DOUBTFUL, OCR_NO_TEXT, RISK_HIGH, Reason


def decide_rated(
    policy: Policy,
    *,
    reading: Reading,
    fields: ReceiptFields,
    features: Features,
    risk: Risk,
    duplicate_bytes: bool,
    circumstances: Iterable[Reason] = (),
    by_strength: Sequence[Reason] = REASONS_BY_STRENGTH,
    evidence_of: Mapping[str, Reason] = EVIDENCE_OF,
) -> Verdict:
    """Return `clear` without reasons, or `review` with every reason that applies.

    Doubts about what was read come first, strongest first; then the risk, and behind it each kind of
    evidence that carries it, heaviest first.

    Args:
        circumstances: what the job that the scan came with calls into question.
        by_strength: all doubts but the risk and its evidence, strongest first.
        evidence_of: the kind of evidence that each feature is.
    """
    found = {DUPLICATE_BYTES, *circumstances} if duplicate_bytes else {*circumstances}
    if reading.lines:
        found.update(field_reasons(fields))
        if features.values["confidence_decided"] < policy.ocr_confidence_min:
            found.add(OCR_DOUBTFUL)
    else:
        # Nothing was read, so nothing that would be said of fields or sums is evidence.
        found.add(OCR_NO_TEXT)
    ordered = [reason for reason in by_strength if reason in found]
    if reading.lines and risk.probability_ppm >= policy.risk_review_ppm:
        evidence = evidence_by_weight(risk, evidence_of, log_odds_min=policy.evidence_log_odds_min)
        ordered += [RISK_HIGH, *evidence]
    reasons = tuple(reason.code for reason in ordered if reason.code in policy.review_codes)
    return Verdict(decision=Decision.REVIEW if reasons else Decision.CLEAR, reasons=reasons)


def evidence_by_weight(
    risk: Risk, evidence_of: Mapping[str, Reason], *, log_odds_min: float
) -> Iterator[Reason]:
    """Yield the kinds of evidence whose contributions together reach the limit, heaviest first."""
    weights: dict[Reason, float] = {}
    for name, log_odds in risk.contributions:
        reason = evidence_of.get(name)
        if reason is not None:
            weights[reason] = weights.get(reason, 0.0) + log_odds
    ranked = sorted(weights.items(), key=lambda pair: (-pair[1], pair[0].code))
    yield from (reason for reason, weight in ranked if weight > 0 and weight >= log_odds_min)
