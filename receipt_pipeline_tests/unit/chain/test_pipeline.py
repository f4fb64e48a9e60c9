"""The chain: one run from bytes to outcome, under the identities it was loaded with."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from PIL import Image

from receipt_pipeline.chain.features.table import FEATURES
from receipt_pipeline.chain.ocr.engine import OcrSettings
from receipt_pipeline.chain.pipeline import BoundStage, Chain, bind_stages, chain_revision, chain_stages
from receipt_pipeline.chain.release import load_policy, load_risk_model, shipped_releases
from receipt_pipeline.chain.values import Features
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes
from receipt_pipeline.core.errors import IdentityMismatch, StageFailed
from receipt_pipeline.core.items import NO_CONTEXT, Decision, EarlierItem, ItemClass, ItemContext, ItemOutcome
from receipt_pipeline.settings import SHIPPED_ARTIFACTS as SHIPPED
from receipt_pipeline_tests.fakes.scripted_ocr import ScriptedOcr

PLAIN = [
    "LUMBUNG PADI SDN BHD",
    "43000 KAJANG, SELANGOR",
    "DATE: 14/03/2018 12:41:52",
    "BOOK RM 25.45",
    "TOTAL RM 25.45",
    "CASH RM 30.00",
    "CHANGE RM 4.55",
]

# Without library versions, so that a new library is a new revision but no changed chain.
REVISION = "sha256:1bd0e5ee43bcbb6e762d1b2babe3b831bac2127f9c0441fb226758eed78e4769"
RECEIPTS_AND_OUTCOMES = (
    (
        "LUMBUNG PADI SDN BHD|12, JALAN KENANGA 3/4, 43000 KAJANG, SELANGOR."
        "|DATE: 14/03/2018 12:41:52|BOOK RM 25.45|TOTAL RM 25.45|CASH RM 30.00|CHANGE RM 4.55",
        "sha256:1b357e21ea1485dd78564bfea93a9b3c16250585bd496d0fe7dced088e1bca51",
    ),
    (
        "WALDMEISTER GMBH|MUEHLENWEG 4|10115 BERLIN|02.11.2024"
        "|BROT 3,20|MILCH 1,05|SUMME EUR 4,25|BAR 5,00|RUECKGELD 0,75",
        "sha256:c9bccafa8f245631a098a41f6f501bb1eb2a00b6347668dd2dede27f157010e2",
    ),
    (
        "THIRD BRIDGE DINER|03/04/2025|TEA 2.00|TOTAL 2.00|TIP|SUM",
        "sha256:405f1f3aaaefa876ea19f2f8c74533888a429e0c374006635fa5482077c59660",
    ),
    (
        "OLD KILN LTD|LONDON|5 MAY 2024|RETURN -39.95|TOTAL GBP -39.95|VISA -39.95",
        "sha256:a658e8040930d150ccaed88c38871fe6684e70c305ec7e361c84ac7a69ff61e4",
    ),
)


def picture(pages: int = 1) -> bytes:
    buffer = io.BytesIO()
    page = Image.new("L", (320, 320), 255)
    page.save(buffer, "TIFF", save_all=True, append_images=[page] * (pages - 1))
    return buffer.getvalue()


def blank_png() -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (320, 320), 255).save(buffer, "PNG")
    return buffer.getvalue()


def chain(*pages: list[str], fails: int = 0, alias: str = "production") -> Chain:
    ships = shipped_releases(SHIPPED, image_digest="sha256:" + "a" * 64)
    release = next(one.release for one in ships if one.alias == alias)
    parts = bind_stages(
        engine=ScriptedOcr(pages=pages, fails=fails),
        model=load_risk_model(SHIPPED, release.risk_model_digest),
        policy=load_policy(SHIPPED, release.policy_revision),
    )
    return Chain(parts)


def classify(
    loaded: Chain,
    data: bytes,
    *,
    duplicate_bytes: bool = False,
    on_page: Callable[[], None] = lambda: None,
    context: ItemContext = NO_CONTEXT,
) -> ItemOutcome:
    return loaded.classify(data, duplicate_bytes=duplicate_bytes, on_page=on_page, context=context)


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
    assert outcome.evidence["contributions"] == []


def test_the_same_bytes_give_the_same_outcome_digest() -> None:
    assert classify(chain(PLAIN), picture()).outcome_digest == classify(chain(PLAIN), picture()).outcome_digest


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
@pytest.mark.parametrize("change", ["version", "parameters", "artifact"])
def test_a_stage_swapped_while_a_scan_is_in_work_ends_it_without_output(name: str, change: str) -> None:
    loaded = chain(PLAIN)
    answered: list[ItemOutcome] = []

    def swap() -> None:
        bound: BoundStage[Callable[..., object]] = getattr(loaded.parts, name)
        if change == "version":
            other = replace(bound, stage=replace(bound.stage, version="other"))
        elif change == "parameters":
            other = replace(bound, stage=replace(bound.stage, parameters={"other": 1}))
        else:
            other = replace(bound, artifact_digest="sha256:" + "0" * 64)
        setattr(loaded.parts, name, other)

    with pytest.raises(IdentityMismatch) as caught:
        answered.append(classify(loaded, picture(), on_page=swap))
    assert caught.value.reason.code == "IDENTITY.MISMATCH.v1"
    assert caught.value.facts["artefact"] == f"stage {name}"
    assert answered == []


@pytest.mark.requirement("R008")
def test_a_stage_in_the_place_of_another_is_noticed() -> None:
    loaded = chain(PLAIN)
    loaded.parts.features = replace(loaded.parts.features, stage=loaded.parts.extract.stage)
    with pytest.raises(IdentityMismatch):
        classify(loaded, picture())


def test_a_swap_is_noticed_for_a_rejected_scan_too() -> None:
    loaded = chain(PLAIN)
    loaded.parts.policy = replace(loaded.parts.policy, artifact_digest="sha256:" + "1" * 64)
    with pytest.raises(IdentityMismatch):
        classify(loaded, b"not a scan")


def test_the_chain_revision_covers_order_versions_parameters_and_reader_models() -> None:
    stages = chain_stages()
    changed = [
        tuple(reversed(stages)),
        (replace(stages[0], version="other"), *stages[1:]),
        (stages[0], replace(stages[1], parameters={**stages[1].parameters, "threads": 2}), *stages[2:]),
        (stages[0], replace(stages[1], parameters={**stages[1].parameters, "models": {}}), *stages[2:]),
        chain_stages(OcrSettings(recognition_batch=7)),
    ]
    revisions = {chain_revision(other) for other in changed}
    assert len(revisions) == len(changed)
    assert chain_revision() == chain_revision(stages)
    assert chain_revision() not in revisions


def test_the_features_stage_carries_its_contract() -> None:
    bounds = chain_stages()[3].parameters["bounds"]
    assert [bound["name"] for bound in bounds] == [feature.name for feature in FEATURES]


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


def test_the_revision_changes_with_the_chain_alone() -> None:
    assert chain_revision(chain_stages(OcrSettings(versions=()))) == REVISION


@pytest.mark.parametrize(("lines", "digest"), RECEIPTS_AND_OUTCOMES)
def test_outcomes_stay_the_same_to_the_byte(lines: str, digest: str) -> None:
    assert classify(chain(lines.split("|")), blank_png()).outcome_digest == digest


def test_a_rescan_is_reviewed_and_names_the_item_that_it_repeats() -> None:
    loaded = chain(RECEIPTS_AND_OUTCOMES[0][0].split("|"))

    def outcome(context: ItemContext) -> ItemOutcome:
        return classify(loaded, blank_png(), context=context)

    accepted_at = datetime(2018, 3, 20, 8, tzinfo=UTC)
    first = outcome(ItemContext(accepted_at))
    assert (first.decision, first.reasons) == (Decision.CLEAR, ())
    earlier = EarlierItem("item-1", first.fields, first.evidence["scan_print"])
    again = outcome(ItemContext(accepted_at, (earlier,)))
    assert (again.decision, again.reasons) == (Decision.REVIEW, ("DUPLICATE.PICTURE.v1",))
    assert again.evidence["near_duplicate_of"] == "item-1"
    assert outcome(ItemContext(datetime(2018, 3, 1, tzinfo=UTC))).reasons == ("DATE.AFTER_SUBMISSION.v1",)
    assert outcome(ItemContext(datetime(2039, 3, 1, tzinfo=UTC))).reasons == ("DATE.TOO_OLD.v1",)
    assert outcome(ItemContext(accepted_at)).outcome_digest == first.outcome_digest


def test_goods_that_do_not_add_up_are_reviewed_with_the_meaning_of_the_evidence() -> None:
    altered = RECEIPTS_AND_OUTCOMES[0][0].replace("BOOK RM 25.45", "BOOK RM 95.45")
    outcome = classify(chain(altered.split("|")), blank_png())
    assert (outcome.decision, outcome.reasons) == (Decision.REVIEW, ("RISK.HIGH.v1", "ARITHMETIC.DISAGREES.v1"))
    meanings = {one["feature"]: one["meaning"] for one in outcome.evidence["contributions"]}
    assert meanings["goods_sum_unmet"] == "the goods add up to no printed sum"


def test_the_two_releases_score_one_scan_differently() -> None:
    lines = RECEIPTS_AND_OUTCOMES[0][0].replace("BOOK RM 25.45", "BOOK RM 95.45").split("|")
    chains = [chain(lines, alias=alias) for alias in ("production", "previous")]
    assert len({classify(one, blank_png()).risk_ppm for one in chains}) == 2
