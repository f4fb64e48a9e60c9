"""The chain: its ordered stages, the revision over them, and the one run from bytes to outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Generic, TypeVar

from receipt_pipeline.chain.decode import DecodeLimits, decode_scan
from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.features.table import MEANINGS, compute_features, contract_document, refused_features
from receipt_pipeline.chain.near_duplicates import LAYOUT_APART_MAX, NUMBERS_SHARED_MIN
from receipt_pipeline.chain.ocr.engine import OcrSettings, read_scan
from receipt_pipeline.chain.policy import AHEAD_DAYS_MAX, POLICY_CONTRACT, Policy, PolicyCase, decide, situation_in_job
from receipt_pipeline.chain.risk import MODEL_KIND, RiskModel, score
from receipt_pipeline.chain.values import DecodedScan, Features, OcrEngine, PageText, ReceiptFields, Risk, Verdict
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import IdentityMismatch, ScanRejected
from receipt_pipeline.core.items import NO_CONTEXT, ItemClass, ItemContext, ItemOutcome
from receipt_pipeline.core.reasons import FEATURES_REFUSED, IDENTITY_MISMATCH

CONTRIBUTIONS_SHOWN = 5
# Less than a tenth moves a probability by two hundredths at most and is no reason for anything.
LOG_ODDS_SHOWN_MIN = 0.1
CONFIDENCE_DIGITS = 4

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage as the chain revision knows it: name, version, and every parameter that shapes output."""

    name: str
    version: str
    parameters: Mapping[str, Any]

    @property
    def revision(self) -> str:
        """Return the digest of the stage's name, version and parameters."""
        return digest_of({"name": self.name, "version": self.version, "parameters": self.parameters})


def chain_stages(settings: OcrSettings | None = None) -> tuple[Stage, ...]:
    """Return the ordered stages, for these settings of the text reader or the chain's own."""
    policy = {
        "contract": POLICY_CONTRACT,
        "layout_apart_max": LAYOUT_APART_MAX,
        "numbers_shared_min": NUMBERS_SHARED_MIN,
        "ahead_days_max": AHEAD_DAYS_MAX,
    }
    return (
        Stage("decode", "1", asdict(DecodeLimits())),
        Stage("ocr", "2", (settings if settings is not None else OcrSettings()).as_document()),
        Stage("extract", "4", {}),
        Stage("features", "5", contract_document()),
        Stage("risk", "2", {"kind": MODEL_KIND}),
        Stage("policy", "3", policy),
    )


def chain_revision(stages: tuple[Stage, ...] | None = None) -> str:
    """Return the digest over the ordered stages, OCR model digests included; the chain's own by default."""
    return digest_of([stage.revision for stage in (chain_stages() if stages is None else stages)])


@dataclass(frozen=True, slots=True)
class BoundStage(Generic[F]):
    """A stage with the function that runs it and the digest of the artifact that it uses, if any."""

    stage: Stage
    run: F
    artifact_digest: str = ""

    @property
    def identity(self) -> str:
        """Return the digest that must stay what it was when the chain was loaded."""
        return digest_of({"revision": self.stage.revision, "artifact": self.artifact_digest})


@dataclass(slots=True)
class ChainParts:
    """The six bound stages in the order in which they run."""

    decode: BoundStage[Callable[[bytes], DecodedScan]]
    ocr: BoundStage[Callable[[DecodedScan, Callable[[], None]], PageText]]
    extract: BoundStage[Callable[[PageText], ReceiptFields]]
    features: BoundStage[Callable[[DecodedScan, PageText, ReceiptFields], Features]]
    risk: BoundStage[Callable[[Features], Risk]]
    policy: BoundStage[Callable[[PolicyCase], Verdict]]


def bind_stages(*, engine: OcrEngine, model: RiskModel, policy: Policy) -> ChainParts:
    """Bind the stages to a text reader, a verified risk model and a verified policy."""
    decode, ocr, extract, features, risk, verdict = chain_stages()
    return ChainParts(
        decode=BoundStage(decode, decode_scan),
        ocr=BoundStage(ocr, lambda scan, on_page: read_scan(scan, engine, on_page=on_page)),
        extract=BoundStage(extract, extract_fields),
        features=BoundStage(features, compute_features),
        risk=BoundStage(risk, partial(score, model), model.digest),
        policy=BoundStage(verdict, partial(decide, policy=policy), policy.revision),
    )


class Chain:
    """One loaded chain: every stage is held to the identity that it had when the chain was loaded."""

    def __init__(self, parts: ChainParts) -> None:
        self.parts = parts
        self._loaded = {name: bound.identity for name, bound in _named(parts)}

    def classify(
        self, data: bytes, *, duplicate_bytes: bool, on_page: Callable[[], None], context: ItemContext = NO_CONTEXT
    ) -> ItemOutcome:
        """Run all stages over one scan; equal bytes in an equal situation give one outcome digest.

        Args:
            data: the scan's bytes.
            duplicate_bytes: whether acceptance found the same bytes under an earlier item.
            on_page: called after each page that was read, as the sign of progress.
            context: what else of the job counts: its day, and the items before this one.
        Raises:
            IdentityMismatch: IDENTITY.MISMATCH.v1 when a stage is no longer the one loaded; no
                output is given then.
            StageFailed: when a stage gives no answer although the scan is acceptable.
        """
        try:
            scan = self._verified("decode", self.parts.decode)(data)
        except ScanRejected as refused:
            return self._final(_rejected(refused.reason.code, dict(refused.facts)))
        page_text = self._verified("ocr", self.parts.ocr)(scan, on_page)
        fields_read = self._verified("extract", self.parts.extract)(page_text)
        features = self._verified("features", self.parts.features)(scan, page_text, fields_read)
        refused_names = refused_features(features)
        if refused_names:
            return self._final(_rejected(FEATURES_REFUSED.code, {"features": list(refused_names)}))
        risk = self._verified("risk", self.parts.risk)(features)
        situation = situation_in_job(scan, page_text, fields_read, context)
        case = PolicyCase(page_text, fields_read, features, risk, duplicate_bytes, situation)
        verdict = self._verified("policy", self.parts.policy)(case)
        return self._final(_classified(scan, case, verdict))

    def _verified(self, name: str, bound: BoundStage[F]) -> F:
        """Return the stage's function after proving that it is still the stage that was loaded."""
        if bound.stage.name != name or bound.identity != self._loaded[name]:
            raise IdentityMismatch(
                IDENTITY_MISMATCH, artefact=f"stage {name}", expected=self._loaded[name], found=bound.identity
            )
        return bound.run

    def _final(self, outcome: ItemOutcome) -> ItemOutcome:
        """Return the outcome only when all stages are still the loaded ones after the last has run."""
        for name, bound in _named(self.parts):
            self._verified(name, bound)
        return outcome


def _named(parts: ChainParts) -> list[tuple[str, BoundStage[Any]]]:
    return [(part.name, getattr(parts, part.name)) for part in fields(parts)]


def _rejected(code: str, facts: dict[str, Any]) -> ItemOutcome:
    plain = {name: value for name, value in facts.items() if isinstance(value, str | int | list)}
    return ItemOutcome(item_class=ItemClass.REJECTED, reason_code=code, evidence=plain)


def _classified(scan: DecodedScan, case: PolicyCase, verdict: Verdict) -> ItemOutcome:
    contributions = strongest_contributions(case.features, case.risk)
    evidence = {**_text_evidence(scan, case.page_text), "contributions": contributions}
    return ItemOutcome(
        item_class=ItemClass.CLASSIFIED,
        decision=verdict.decision,
        risk_ppm=case.risk.probability_ppm,
        fields=case.fields.as_document(),
        reasons=verdict.reasons,
        evidence={**evidence, **case.situation.evidence()},
    )


def strongest_contributions(features: Features, risk: Risk) -> list[dict[str, Any]]:
    """Return what raises the risk, heaviest first, each with its meaning; what lowers it is left out."""
    raising = [(name, log_odds) for name, log_odds in risk.contributions if log_odds >= LOG_ODDS_SHOWN_MIN]
    return [
        {"feature": name, "value": features.values[name], "log_odds": log_odds, "meaning": MEANINGS[name]}
        for name, log_odds in raising[:CONTRIBUTIONS_SHOWN]
    ]


def _text_evidence(scan: DecodedScan, page_text: PageText) -> dict[str, Any]:
    """Return what explains an outcome besides its risk: pages and text confidence."""
    confidences = [line.confidence for line in page_text.lines]
    mean = round(sum(confidences) / len(confidences), CONFIDENCE_DIGITS) if confidences else None
    return {
        "kind": scan.kind,
        "pages": len(scan.pages),
        "blank_pages": list(page_text.blank_pages),
        "confidence_mean": mean,
    }
