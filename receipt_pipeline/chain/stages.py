"""The chain: its ordered stages with their revisions, and the one run from bytes to outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from receipt_pipeline.chain.decode import DecodeLimits, decode_scan
from receipt_pipeline.chain.extract import extract_fields
from receipt_pipeline.chain.extract_rules import RULES_V2
from receipt_pipeline.chain.features import CONTRACT, FEATURE_CONTRACT, admit, compute_features
from receipt_pipeline.chain.features_v2 import (
    CONTRACT_V2,
    FEATURE_CONTRACT_V2,
    MEANINGS,
    admit_v2,
    compute_features_v2,
)
from receipt_pipeline.chain.ocr import OcrSettings, read_scan
from receipt_pipeline.chain.policy import POLICY_CONTRACT, STATED_RATE_CONTRACT, Policy, decide
from receipt_pipeline.chain.policy_rated import decide_rated
from receipt_pipeline.chain.risk import CALIBRATED_KIND, MODEL_KIND, RiskModel, score
from receipt_pipeline.chain.values import (
    DecodedScan,
    Features,
    OcrEngine,
    Reading,
    ReceiptFields,
    Risk,
    Verdict,
)
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import IdentityMismatch, ScanRejected
from receipt_pipeline.core.items import NO_CONTEXT, ItemClass, ItemContext, ItemOutcome
from receipt_pipeline.core.reasons import FEATURES_REFUSED, IDENTITY_MISMATCH

SETTINGS_V1 = OcrSettings()
SETTINGS_V2 = OcrSettings(trims_margins=True, weighs_words=True)
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


def stages_v1(settings: OcrSettings | None = None) -> tuple[Stage, ...]:
    """Return the ordered stages of `chain-v1`, for these OCR settings or the chain's own."""
    ocr = (settings if settings is not None else SETTINGS_V1).as_document()
    return (_decoded(), Stage("ocr", "1", ocr), Stage("extract", "1", {}), *_judged_v1())


def stages_v2(settings: OcrSettings | None = None) -> tuple[Stage, ...]:
    """Return the ordered stages of `chain-v2`, for these OCR settings or the chain's own."""
    ocr = (settings if settings is not None else SETTINGS_V2).as_document()
    return (_decoded(), Stage("ocr", "2", ocr), Stage("extract", "2", RULES_V2.as_document()), *_judged_v2())


def _decoded() -> Stage:
    return Stage("decode", "1", asdict(DecodeLimits()))


def _judged_v1() -> tuple[Stage, ...]:
    contract = {"contract": FEATURE_CONTRACT, "bounds": [asdict(bound) for bound in CONTRACT]}
    return (
        Stage("features", "1", contract),
        Stage("risk", "1", {"kind": MODEL_KIND}),
        Stage("policy", "1", {"contract": POLICY_CONTRACT}),
    )


def _judged_v2() -> tuple[Stage, ...]:
    contract = {"contract": FEATURE_CONTRACT_V2, "bounds": [asdict(bound) for bound in CONTRACT_V2]}
    return (
        Stage("features", "2", contract),
        Stage("risk", "2", {"kind": CALIBRATED_KIND}),
        Stage("policy", "2", {"contract": STATED_RATE_CONTRACT}),
    )


def chain_revision(stages: tuple[Stage, ...] | None = None) -> str:
    """Return the digest over the ordered stages, OCR model digests included; `chain-v1` by default."""
    ordered = stages_v1() if stages is None else stages
    return digest_of([stage.revision for stage in ordered])


def read_pages(scan: DecodedScan, engine: OcrEngine, on_page: Callable[[], None]) -> Reading:
    """Read a scan as `chain-v1` does: every page once."""
    return read_scan(scan, engine, on_page=on_page)


@dataclass(frozen=True, slots=True)
class BoundStage(Generic[F]):
    """A stage with the function that runs it and the digest of the artefact that it uses, if any."""

    stage: Stage
    run: F
    artefact_digest: str = ""

    @property
    def identity(self) -> str:
        """Return the digest that must stay what it was when the chain was loaded."""
        return digest_of({"revision": self.stage.revision, "artefact": self.artefact_digest})


@dataclass(slots=True)
class ChainParts:
    """The six bound stages in the order in which they run."""

    decode: BoundStage[Callable[[bytes], DecodedScan]]
    ocr: BoundStage[Callable[[DecodedScan, Callable[[], None]], Reading]]
    extract: BoundStage[Callable[[Reading], ReceiptFields]]
    features: BoundStage[Callable[[DecodedScan, Reading, ReceiptFields], Features]]
    risk: BoundStage[Callable[[Features], Risk]]
    policy: BoundStage[Callable[..., Verdict]]


@dataclass(frozen=True, slots=True)
class ReadingStages:
    """The functions of one chain's stages `ocr` and `extract`; those of `chain-v1` by default."""

    read: Callable[[DecodedScan, OcrEngine, Callable[[], None]], Reading] = read_pages
    extract: Callable[[Reading], ReceiptFields] = extract_fields


READING_V1 = ReadingStages()


class InJob(Protocol):
    """How a scan stands in its job, as far as the chain passes it on."""

    def evidence(self) -> dict[str, Any]:
        """Return what the outcome keeps of it."""


@dataclass(frozen=True, slots=True)
class JudgingStages:
    """The functions of one chain's stages `features`, `risk` and `policy`, and the contract they share.

    `features` also sees the decoded pages, whose pixels may be evidence; `admit` names the features
    that break the contract; `explain` says in the outcome's evidence what the risk is made of; `stand`
    places the scan in its job for `decide`, None where the chain judges by the bytes alone.
    """

    contract: str
    policy_contract: str
    features: Callable[[DecodedScan, Reading, ReceiptFields], Features]
    admit: Callable[[Features], tuple[str, ...]]
    decide: Callable[..., Verdict]
    explain: Callable[[Features, Risk], list[dict[str, Any]]]
    stand: Callable[[DecodedScan, Reading, ReceiptFields, ItemContext], InJob] | None = None


def _strongest(features: Features, risk: Risk) -> list[dict[str, Any]]:
    return [
        {"feature": name, "value": features.values[name], "log_odds": log_odds}
        for name, log_odds in risk.contributions[:CONTRIBUTIONS_SHOWN]
    ]


JUDGING_V1 = JudgingStages(
    contract=FEATURE_CONTRACT,
    policy_contract=POLICY_CONTRACT,
    features=lambda _scan, reading, fields_read: compute_features(reading, fields_read),
    admit=admit,
    decide=decide,
    explain=_strongest,
)


def speaking(meanings: Mapping[str, str], features: Features, risk: Risk) -> list[dict[str, Any]]:
    """Return what raises the risk, heaviest first, each with its meaning; what lowers it is left out."""
    raising = [(name, log_odds) for name, log_odds in risk.contributions if log_odds >= LOG_ODDS_SHOWN_MIN]
    return [
        {
            "feature": name,
            "value": features.values[name],
            "log_odds": log_odds,
            "meaning": meanings[name],
        }
        for name, log_odds in raising[:CONTRIBUTIONS_SHOWN]
    ]


JUDGING_V2 = JudgingStages(
    contract=FEATURE_CONTRACT_V2,
    policy_contract=STATED_RATE_CONTRACT,
    features=compute_features_v2,
    admit=admit_v2,
    decide=decide_rated,
    explain=partial(speaking, MEANINGS),
)


def bind_stages(
    stages: tuple[Stage, ...],
    *,
    engine: OcrEngine,
    model: RiskModel,
    policy: Policy,
    reading: ReadingStages = READING_V1,
    judging: JudgingStages = JUDGING_V1,
) -> ChainParts:
    """Bind ordered stages to their functions, a text reader, a verified risk model and a verified policy."""
    decode, ocr, extract, features, risk, verdict = stages
    return ChainParts(
        decode=BoundStage(decode, decode_scan),
        ocr=BoundStage(ocr, lambda scan, on_page: reading.read(scan, engine, on_page)),
        extract=BoundStage(extract, reading.extract),
        features=BoundStage(features, judging.features),
        risk=BoundStage(risk, partial(score, model), model.digest),
        policy=BoundStage(verdict, partial(judging.decide, policy), policy.revision),
    )


class Chain:
    """One loaded chain: every stage is held to the identity that it was loaded with.

    Args:
        parts: the bound stages; their identities are taken down here, once.
        judging: admits the features and explains the risk as the bound stages compute them.
    """

    def __init__(self, parts: ChainParts, *, judging: JudgingStages = JUDGING_V1) -> None:
        self.parts = parts
        self._judging = judging
        self._loaded = {name: bound.identity for name, bound in _named(parts)}

    def classify(
        self,
        data: bytes,
        *,
        duplicate_bytes: bool,
        on_page: Callable[[], None],
        submitted: ItemContext = NO_CONTEXT,
    ) -> ItemOutcome:
        """Run all stages over one scan; equal bytes in equal circumstances give one outcome digest.

        Args:
            data: the scan's bytes.
            duplicate_bytes: whether acceptance found the same bytes under an earlier item.
            on_page: called after each page that was read, as the sign of progress.
            submitted: what else of the job may count; chains that judge by the bytes alone never look.
        Raises:
            IdentityMismatch: IDENTITY.MISMATCH.v1 when a stage is no longer the one loaded; no
                output is given then.
            StageFailed: when a stage gives no answer although the scan is acceptable.
        """
        try:
            scan = self._held("decode", self.parts.decode)(data)
        except ScanRejected as refused:
            return self._final(_rejected(refused.reason.code, dict(refused.facts)))
        reading = self._held("ocr", self.parts.ocr)(scan, on_page)
        fields_read = self._held("extract", self.parts.extract)(reading)
        features = self._held("features", self.parts.features)(scan, reading, fields_read)
        refused_names = self._judging.admit(features)
        if refused_names:
            return self._final(_rejected(FEATURES_REFUSED.code, {"features": list(refused_names)}))
        risk = self._held("risk", self.parts.risk)(features)
        stand = self._judging.stand
        standing = None if stand is None else stand(scan, reading, fields_read, submitted)
        verdict = self._held("policy", self.parts.policy)(
            reading=reading,
            fields=fields_read,
            features=features,
            risk=risk,
            duplicate_bytes=duplicate_bytes,
            **({} if standing is None else {"standing": standing}),
        )
        evidence = _evidence(scan, reading) | {"contributions": self._judging.explain(features, risk)}
        if standing is not None:
            evidence |= standing.evidence()
        return self._final(_classified(fields_read, risk, verdict, evidence))

    def _held(self, name: str, bound: BoundStage[F]) -> F:
        """Return the stage's function after proving that it is still the stage that was loaded."""
        if bound.stage.name != name or bound.identity != self._loaded[name]:
            raise IdentityMismatch(
                IDENTITY_MISMATCH, artefact=f"stage {name}", expected=self._loaded[name], found=bound.identity
            )
        return bound.run

    def _final(self, outcome: ItemOutcome) -> ItemOutcome:
        """Give the outcome out only when all stages are still the loaded ones after the last has run."""
        for name, bound in _named(self.parts):
            self._held(name, bound)
        return outcome


def _named(parts: ChainParts) -> list[tuple[str, BoundStage[Any]]]:
    return [(part.name, getattr(parts, part.name)) for part in fields(parts)]


def _rejected(code: str, facts: dict[str, Any]) -> ItemOutcome:
    plain = {name: value for name, value in facts.items() if isinstance(value, str | int | list)}
    return ItemOutcome(item_class=ItemClass.REJECTED, reason_code=code, evidence=plain)


def _classified(
    fields_read: ReceiptFields, risk: Risk, verdict: Verdict, evidence: dict[str, Any]
) -> ItemOutcome:
    return ItemOutcome(
        item_class=ItemClass.CLASSIFIED,
        decision=verdict.decision,
        risk_ppm=risk.probability_ppm,
        fields=fields_read.as_document(),
        reasons=verdict.reasons,
        evidence=evidence,
    )


def _evidence(scan: DecodedScan, reading: Reading) -> dict[str, Any]:
    """Return what explains an outcome beside its risk: pages and text confidence."""
    confidences = [line.confidence for line in reading.lines]
    mean = round(sum(confidences) / len(confidences), CONFIDENCE_DIGITS) if confidences else None
    return {
        "kind": scan.kind,
        "pages": len(scan.pages),
        "blank_pages": list(reading.blank_pages),
        "confidence_mean": mean,
    }
