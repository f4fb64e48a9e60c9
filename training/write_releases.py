"""The shipped releases: their models by seed, their policies, and the templates that name both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from receipt_pipeline.chain.features.table import FEATURE_CONTRACT
from receipt_pipeline.chain.policy import POLICY_CONTRACT, REVIEW_CODES
from receipt_pipeline.chain.release import POLICIES_FOLDER, RELEASES_FOLDER
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """One shipped release: its alias, the seed of its model, and the limits of its policy.

    `risk_review_ppm` is the risk from which a receipt is reviewed. `review_rate_ppm` is the share of genuine
    texts at or above it, in folds that had not seen their shops: `genuine_texts` in the model's calibration.
    """

    name: str
    alias: str
    seed: int
    risk_review_ppm: int
    review_rate_ppm: int

    def policy_document(self) -> dict[str, Any]:
        """Return the policy of the release; every reason forces a review."""
        return {
            "contract": POLICY_CONTRACT,
            "name": self.name,
            "review_codes": sorted(REVIEW_CODES),
            "limits": {
                "risk_review_ppm": self.risk_review_ppm,
                "review_rate_ppm": self.review_rate_ppm,
                "ocr_confidence_min_ppm": 850_000,
                "evidence_log_odds_min_ppm": 300_000,
                # Twenty years: longer than books are kept anywhere, so rather misread.
                "receipt_age_days_max": 7_305,
            },
        }


PLANS = (
    ReleasePlan("2027-01", "previous", seed=1111, risk_review_ppm=480_000, review_rate_ppm=200_000),
    ReleasePlan("2027-02", "production", seed=1212, risk_review_ppm=550_000, review_rate_ppm=150_000),
)


def write_releases(artifacts: Path, models: Mapping[str, str]) -> None:
    """Write policies and templates of all plans below `artifacts`; models are digests by release name."""
    for folder in (POLICIES_FOLDER, RELEASES_FOLDER):
        (artifacts / folder).mkdir(parents=True, exist_ok=True)
    for plan in PLANS:
        policy = canonical_json(plan.policy_document())
        revision = digest_of_bytes(policy)
        (artifacts / POLICIES_FOLDER / f"{revision.removeprefix('sha256:')}.json").write_bytes(policy)
        template = {
            "name": plan.name,
            "alias": plan.alias,
            "feature_contract": FEATURE_CONTRACT,
            "risk_model": models[plan.name],
            "policy": revision,
        }
        text = json.dumps(template, indent=2) + "\n"
        (artifacts / RELEASES_FOLDER / f"{plan.name}.json").write_text(text, encoding="utf-8")
