"""The chain: one run from bytes to outcome, under the identities it was loaded with."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from receipt_pipeline.chain.features import CONTRACT
from receipt_pipeline.chain.ocr.engine import OcrSettings
from receipt_pipeline.chain.policy import load_policy
from receipt_pipeline.chain.risk import load_risk_model
from receipt_pipeline.chain.stages import BoundStage, Chain, bind_stages, chain_revision, stages_v1
from receipt_pipeline.chain.values import Features
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes
from receipt_pipeline.core.errors import IdentityMismatch, StageFailed
from receipt_pipeline.core.items import Decision, ItemClass, ItemOutcome
from receipt_pipeline_tests.fakes.scripted_ocr import ScriptedOcr
from receipt_pipeline_tests.suite_results import PROJECT

SHIPPED = PROJECT / "data"
PLAIN = [
    "LUMBUNG PADI SDN BHD",
    "43000 KAJANG, SELANGOR",
    "DATE: 14/03/2018 12:41:52",
    "BOOK RM 25.45",
    "TOTAL RM 25.45",
    "CASH RM 30.00",
    "CHANGE RM 4.55",
]


def picture(pages: int = 1) -> bytes:
    """The bytes of a small scan of so many blank pages; the scripted reader says what stands on them."""
    buffer = io.BytesIO()
    page = Image.new("L", (320, 320), 255)
    page.save(buffer, "TIFF", save_all=True, append_images=[page] * (pages - 1))
    return buffer.getvalue()


def chain(*pages: list[str], fails: int = 0) -> Chain:
    """A chain over the newest shipped model and policy whose reader answers these pages."""
    engine = ScriptedOcr(pages=pages, fails=fails)
    model, policy = only(SHIPPED / "models"), only(SHIPPED / "policies")
    parts = bind_stages(
        stages_v1(),
        engine=engine,
        model=load_risk_model(model, "sha256:" + model.stem),
        policy=load_policy(policy, "sha256:" + policy.stem),
    )
    return Chain(parts)


def only(folder: Path) -> Path:
    """One of the shipped artefacts of the first contract; which does not matter here."""
    return next(path for path in sorted(folder.glob("*.json")) if b'/v1"' in path.read_bytes())


def classify(
    loaded: Chain, data: bytes, *, duplicate_bytes: bool = False, on_page: Callable[[], None] = lambda: None
) -> ItemOutcome:
    """The chain's outcome."""
    return loaded.classify(data, duplicate_bytes=duplicate_bytes, on_page=on_page)


def test_a_plain_receipt_is_cleared_with_its_fields_and_evidence() -> None:
    outcome = classify(chain(PLAIN), picture())
    assert (outcome.item_class, outcome.decision) == (ItemClass.CLASSIFIED, Decision.CLEAR)
    assert outcome.reasons == ()
    assert outcome.fields["total"] == {"minor": 2545, "currency": "MYR", "printed": "RM 25.45"}
    assert outcome.fields["date"]["iso"] == "2018-03-14"
    assert outcome.risk_ppm is not None
    assert 0 <= outcome.risk_ppm <= 1_000_000
    assert (outcome.evidence["kind"], outcome.evidence["pages"]) == ("tiff", 1)
    assert outcome.evidence["confidence_mean"] == 0.99
    assert len(outcome.evidence["contributions"]) == 5


def test_the_same_bytes_give_the_same_outcome_digest() -> None:
    assert (
        classify(chain(PLAIN), picture()).outcome_digest == classify(chain(PLAIN), picture()).outcome_digest
    )


def test_an_outcome_survives_its_document() -> None:
    outcome = classify(chain(PLAIN), picture())
    assert ItemOutcome.from_document(outcome.as_document()).outcome_digest == outcome.outcome_digest


def test_repeated_bytes_are_reviewed_as_such() -> None:
    outcome = classify(chain(PLAIN), picture(), duplicate_bytes=True)
    assert (outcome.decision, outcome.reasons) == (Decision.REVIEW, ("DUPLICATE.BYTES.v1",))


def test_a_scan_without_text_is_classified_and_reviewed() -> None:
    outcome = classify(chain([]), picture())
    assert (outcome.item_class, outcome.decision) == (ItemClass.CLASSIFIED, Decision.REVIEW)
    assert outcome.reasons == ("OCR.NO_TEXT.v1",)
    assert outcome.evidence["blank_pages"] == [0]


def test_bytes_that_are_no_picture_are_rejected_with_the_reason() -> None:
    outcome = classify(chain(PLAIN), b"not a scan")
    assert (outcome.item_class, outcome.reason_code) == (ItemClass.REJECTED, "SCAN.UNSUPPORTED.v1")
    assert (outcome.decision, outcome.risk_ppm, outcome.reasons) == (None, None, ())


@pytest.mark.requirement("R038", "R015")
def test_a_scan_that_breaks_the_feature_contract_fails_in_processing_by_name() -> None:
    absurd = [line.replace("25.45", "99999999999.00") for line in PLAIN]
    outcome = classify(chain(absurd), picture())
    assert (outcome.item_class, outcome.reason_code) == (ItemClass.REJECTED, "FEATURES.REFUSED.v1")
    assert "total_size" in outcome.evidence["features"]


def test_a_reader_without_answer_fails_the_stage() -> None:
    with pytest.raises(StageFailed) as caught:
        classify(chain(PLAIN, fails=1), picture())
    assert caught.value.reason.code == "ENGINE.OCR_UNAVAILABLE.v1"


def test_progress_is_reported_after_every_page() -> None:
    seen: list[int] = []
    loaded = chain(PLAIN, [], [])
    classify(loaded, picture(pages=3), on_page=lambda: seen.append(len(seen)))
    assert seen == [0, 1, 2]


@pytest.mark.requirement("R008")
@pytest.mark.parametrize("name", ["decode", "ocr", "extract", "features", "risk", "policy"])
@pytest.mark.parametrize("change", ["version", "parameters", "artefact"])
def test_a_stage_swapped_while_a_scan_is_in_work_ends_it_without_output(name: str, change: str) -> None:
    loaded = chain(PLAIN)
    answered: list[ItemOutcome] = []

    def swap() -> None:
        bound: BoundStage[Callable[..., object]] = getattr(loaded.parts, name)
        if change == "version":
            other = replace(bound, stage=replace(bound.stage, version="2"))
        elif change == "parameters":
            other = replace(bound, stage=replace(bound.stage, parameters={"other": 1}))
        else:
            other = replace(bound, artefact_digest="sha256:" + "0" * 64)
        setattr(loaded.parts, name, other)

    with pytest.raises(IdentityMismatch) as caught:
        answered.append(classify(loaded, picture(), on_page=swap))
    assert caught.value.reason.code == "IDENTITY.MISMATCH.v1"
    assert caught.value.facts["artefact"] == f"stage {name}"
    assert answered == []


@pytest.mark.requirement("R008")
def test_a_stage_in_the_place_of_another_is_told() -> None:
    loaded = chain(PLAIN)
    loaded.parts.features = replace(loaded.parts.features, stage=loaded.parts.extract.stage)
    with pytest.raises(IdentityMismatch):
        classify(loaded, picture())


def test_a_swap_is_told_for_a_rejected_scan_too() -> None:
    loaded = chain(PLAIN)
    loaded.parts.policy = replace(loaded.parts.policy, artefact_digest="sha256:" + "1" * 64)
    with pytest.raises(IdentityMismatch):
        classify(loaded, b"not a scan")


def test_the_chain_revision_covers_order_versions_parameters_and_reader_models() -> None:
    stages = stages_v1()
    changed = [
        tuple(reversed(stages)),
        (replace(stages[0], version="2"), *stages[1:]),
        (stages[0], replace(stages[1], parameters={**stages[1].parameters, "threads": 2}), *stages[2:]),
        (stages[0], replace(stages[1], parameters={**stages[1].parameters, "models": {}}), *stages[2:]),
        stages_v1(OcrSettings(recognition_batch=7)),
    ]
    revisions = {chain_revision(other) for other in changed}
    assert len(revisions) == len(changed)
    assert chain_revision() == chain_revision(stages)
    assert chain_revision() not in revisions


def test_the_features_stage_carries_its_contract() -> None:
    bounds = stages_v1()[3].parameters["bounds"]
    assert [bound["name"] for bound in bounds] == [bound.name for bound in CONTRACT]


@pytest.mark.requirement("R015")
def test_features_of_another_contract_reject_the_scan_by_name() -> None:
    loaded = chain(PLAIN)
    compute = loaded.parts.features.run
    stage = loaded.parts.features.stage

    def other(*arguments: object) -> Features:
        return replace(compute(*arguments), contract="receipt-features/v0")  # type: ignore[arg-type]

    parts = loaded.parts
    parts.features = BoundStage(stage, other)
    outcome = classify(Chain(parts), picture())
    assert (outcome.item_class, outcome.reason_code) == (ItemClass.REJECTED, "FEATURES.REFUSED.v1")
    assert outcome.evidence["features"] == ["contract"]


def test_canonical_bytes_of_an_outcome_hold_no_float_surprise() -> None:
    outcome = classify(chain(PLAIN), picture())
    assert digest_of_bytes(canonical_json(outcome.as_document())) == outcome.outcome_digest
