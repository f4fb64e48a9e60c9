"""Training: writes the shipped policies by digest and the release templates that name them.

Run as `python -m receipt_pipeline.training.write_releases` after the models were learned.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from receipt_pipeline.chain.policy import CODES_OF_CONTRACT
from receipt_pipeline.chain.release import MODELS_FOLDER, POLICIES_FOLDER, RELEASES_FOLDER
from receipt_pipeline.chain.revisions import chain_named
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """One shipped release: its chain, the model by its name, the limits of its policy, its alias if any."""

    name: str
    alias: str | None
    chain: str
    model: str
    limits: Mapping[str, int]


PLANS = (
    ReleasePlan(
        name="2026-10",
        alias=None,
        chain="chain-v1",
        model="2026-10",
        limits={"risk_review_ppm": 500_000, "ocr_confidence_min_ppm": 900_000, "sums_disagree_min": 1},
    ),
    ReleasePlan(
        name="2026-11",
        alias=None,
        chain="chain-v1",
        model="2026-11",
        limits={"risk_review_ppm": 400_000, "ocr_confidence_min_ppm": 850_000, "sums_disagree_min": 2},
    ),
    ReleasePlan(
        name="2026-12",
        alias=None,
        chain="chain-v2",
        model="2026-12",
        limits={
            "risk_review_ppm": 500_000,
            "review_rate_ppm": 150_000,
            "ocr_confidence_min_ppm": 850_000,
            "evidence_log_odds_min_ppm": 300_000,
        },
    ),
    ReleasePlan(
        name="2027-01",
        alias="previous",
        chain="chain-v3",
        model="2027-01",
        limits={
            # The risk that 85 of 100 genuine texts stayed below which the model had not seen.
            "risk_review_ppm": 520_000,
            "review_rate_ppm": 150_000,
            "ocr_confidence_min_ppm": 850_000,
            "evidence_log_odds_min_ppm": 300_000,
            # Twenty years: longer than books are kept anywhere, so rather misread.
            "receipt_age_days_max": 7_305,
        },
    ),
    ReleasePlan(
        name="2027-02",
        alias="production",
        chain="chain-v4",
        model="2027-02",
        limits={
            # As before: 85 of 100 genuine texts stayed below it in folds that had not seen them.
            "risk_review_ppm": 550_000,
            "review_rate_ppm": 150_000,
            "ocr_confidence_min_ppm": 850_000,
            "evidence_log_odds_min_ppm": 300_000,
            "receipt_age_days_max": 7_305,
        },
    ),
)


def policy_document(plan: ReleasePlan) -> dict[str, Any]:
    """Return the policy of one plan; every reason forces a review."""
    contract = chain_named(plan.chain).judging.policy_contract
    return {
        "contract": contract,
        "name": plan.name,
        "review_codes": sorted(CODES_OF_CONTRACT[contract]),
        "limits": dict(plan.limits),
    }


def models_by_name(directory: Path) -> dict[str, str]:
    """Return the digest of each model by the name in its document."""
    found: dict[str, str] = {}
    for path in sorted(directory.glob("*.json")):
        data = path.read_bytes()
        name = json.loads(data)["name"]
        assert name not in found, f"two models are named {name}"
        found[name] = digest_of_bytes(data)
    return found


def write_releases(shipped: Path) -> None:
    """Write policies and templates of all plans below `shipped`."""
    models = models_by_name(shipped / MODELS_FOLDER)
    for folder in (POLICIES_FOLDER, RELEASES_FOLDER):
        (shipped / folder).mkdir(parents=True, exist_ok=True)
    for plan in PLANS:
        policy = canonical_json(policy_document(plan))
        revision = digest_of_bytes(policy)
        (shipped / POLICIES_FOLDER / f"{revision.removeprefix('sha256:')}.json").write_bytes(policy)
        template = {
            "name": plan.name,
            "alias": plan.alias,
            "chain": plan.chain,
            "feature_contract": chain_named(plan.chain).judging.contract,
            "risk_model": models[plan.model],
            "policy": revision,
        }
        text = json.dumps(template, indent=2) + "\n"
        (shipped / RELEASES_FOLDER / f"{plan.name}.json").write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Write what ships; print the names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shipped", type=Path, default=Path("data"))
    options = parser.parse_args(arguments)
    write_releases(options.shipped)
    sys.stdout.write(" ".join(plan.name for plan in PLANS) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
