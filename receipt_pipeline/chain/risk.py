"""Risk: from admitted features to a probability of tampering, by a pinned linear model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.chain.values import Features, Risk
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.reasons import IDENTITY_MISMATCH

MODEL_KIND = "calibrated-logistic-regression/v2"
PPM = 1_000_000
CONTRIBUTION_DIGITS = 4
LOG_ODDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class RiskModel:
    """A logistic regression over standardized features, with the contract it was approved for.

    `features`, `mean`, `scale` and `coef` are parallel; `digest` is that of the model's bytes.
    `slope` and `offset` turn the regression's log-odds into calibrated ones (Platt, on receipts that the
    regression never saw).
    """

    digest: str
    contract: str
    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    coef: tuple[float, ...]
    intercept: float
    slope: float = 1.0
    offset: float = 0.0

    @classmethod
    def from_document(cls, document: Mapping[str, Any], *, digest: str) -> RiskModel:
        """Read a model from its JSON. Raises IdentityMismatch: IDENTITY.MISMATCH.v1 for another kind."""
        if document.get("kind") != MODEL_KIND:
            raise IdentityMismatch(IDENTITY_MISMATCH, artefact="risk_model", detail="unknown kind of model")
        model = cls(
            digest=digest,
            contract=document["contract"],
            features=tuple(document["features"]),
            mean=tuple(map(float, document["mean"])),
            scale=tuple(map(float, document["scale"])),
            coef=tuple(map(float, document["coef"])),
            intercept=float(document["intercept"]),
            slope=float(document["calibration"]["slope"]),
            offset=float(document["calibration"]["offset"]),
        )
        assert len(model.features) == len(model.mean) == len(model.scale) == len(model.coef)
        assert all(scale > 0 for scale in model.scale)
        assert model.slope > 0
        return model


def score(model: RiskModel, features: Features) -> Risk:
    """Return the probability of tampering in ppm, and contributions in log-odds, largest first.

    Contributions are measured against the training mean and calibrated, so that they and the
    calibrated intercept sum to the log-odds. Plain Python floats and an exactly rounded sum keep equal
    features equal risks.

    Raises:
        IdentityMismatch: IDENTITY.MISMATCH.v1 when the features are under another contract.
    """
    if features.contract != model.contract:
        raise IdentityMismatch(
            IDENTITY_MISMATCH, artefact="feature_contract", expected=model.contract, found=features.contract
        )
    contributions = [
        (name, model.slope * coef * (features.values[name] - mean) / scale)
        for name, mean, scale, coef in zip(model.features, model.mean, model.scale, model.coef, strict=True)
    ]
    log_odds = math.fsum([model.slope * model.intercept + model.offset, *(value for _, value in contributions)])
    bounded = max(-LOG_ODDS_MAX, min(LOG_ODDS_MAX, log_odds))
    ranked = sorted(
        ((name, round(value, CONTRIBUTION_DIGITS)) for name, value in contributions),
        key=lambda pair: (-abs(pair[1]), pair[0]),
    )
    return Risk(probability_ppm=round(PPM / (1.0 + math.exp(-bounded))), contributions=tuple(ranked))
