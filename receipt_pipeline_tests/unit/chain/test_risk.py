"""Risk: pinned bytes only, and a probability that its contributions explain."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from receipt_pipeline.chain.release import load_risk_model
from receipt_pipeline.chain.risk import MODEL_KIND, RiskModel, score
from receipt_pipeline.chain.values import Features
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes
from receipt_pipeline.core.errors import IdentityMismatch

DOCUMENT = {
    "kind": MODEL_KIND,
    "contract": "receipt-features/v1",
    "name": "test",
    "features": ["sums_failed", "sums_held"],
    "mean": [0.5, 2.0],
    "scale": [0.5, 1.0],
    "coef": [1.5, -0.25],
    "intercept": -0.75,
    "calibration": {"slope": 1.0, "offset": 0.0},
}
DATA = canonical_json(DOCUMENT)
DIGEST = digest_of_bytes(DATA)
MODEL = RiskModel.from_document(DOCUMENT, digest=DIGEST)


def features(**values: float) -> Features:
    return Features(contract="receipt-features/v1", values=values)


def test_the_probability_is_that_of_the_logistic_sum() -> None:
    risk = score(MODEL, features(sums_failed=1.0, sums_held=0.0))
    assert risk.probability_ppm == round(1_000_000 / (1 + math.exp(-(-0.75 + 1.5 + 0.5))))


def test_contributions_come_largest_first_and_add_up_to_the_log_odds() -> None:
    risk = score(MODEL, features(sums_failed=1.0, sums_held=0.0))
    assert risk.contributions == (("sums_failed", 1.5), ("sums_held", 0.5))
    log_odds = MODEL.intercept + sum(value for _, value in risk.contributions)
    assert risk.probability_ppm == round(1_000_000 / (1 + math.exp(-log_odds)))


def test_the_order_of_the_given_features_does_not_matter() -> None:
    one = score(MODEL, features(sums_failed=2.0, sums_held=1.0))
    assert score(MODEL, features(sums_held=1.0, sums_failed=2.0)) == one


def test_extreme_features_stay_within_certainty() -> None:
    assert score(MODEL, features(sums_failed=1e9, sums_held=0.0)).probability_ppm == 1_000_000
    assert score(MODEL, features(sums_failed=-1e9, sums_held=0.0)).probability_ppm == 0


@pytest.mark.requirement("R037")
@pytest.mark.parametrize("place", range(0, len(DATA), 37))
def test_a_model_with_any_altered_byte_is_refused(tmp_path: Path, place: int) -> None:
    altered = DATA[:place] + bytes([DATA[place] ^ 1]) + DATA[place + 1 :]
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / f"{DIGEST[7:]}.json").write_bytes(altered)
    with pytest.raises(IdentityMismatch) as caught:
        load_risk_model(tmp_path, DIGEST)
    assert caught.value.reason.code == "IDENTITY.MISMATCH.v1"
    assert caught.value.facts["artefact"] == "risk_model"
    assert caught.value.facts["found"] == digest_of_bytes(altered)


def test_a_model_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(IdentityMismatch) as caught:
        load_risk_model(tmp_path, DIGEST)
    assert caught.value.reason.code == "IDENTITY.MISSING.v1"


def test_a_model_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(IdentityMismatch):
        RiskModel.from_document({**DOCUMENT, "kind": "another/v1"}, digest=DIGEST)


@pytest.mark.requirement("R015")
def test_features_of_another_contract_are_not_scored() -> None:
    with pytest.raises(IdentityMismatch) as caught:
        score(MODEL, Features(contract="receipt-features/v2", values={"sums_failed": 0.0, "sums_held": 0.0}))
    assert caught.value.reason.code == "IDENTITY.MISMATCH.v1"
    assert caught.value.facts["artefact"] == "feature_contract"


def test_a_calibrated_model_scales_contributions_and_log_odds_alike() -> None:
    document = {**DOCUMENT, "calibration": {"slope": 0.5, "offset": -0.25}}
    risk = score(RiskModel.from_document(document, digest=DIGEST), features(sums_failed=1.0, sums_held=0.0))
    assert risk.contributions == (("sums_failed", 0.75), ("sums_held", 0.25))
    log_odds = 0.5 * -0.75 - 0.25 + 0.75 + 0.25
    assert risk.probability_ppm == round(1_000_000 / (1 + math.exp(-log_odds)))
