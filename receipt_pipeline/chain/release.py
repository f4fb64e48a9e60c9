"""Releases: shipped templates completed for one installation, and pins turned into a loaded chain."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.chain.artefact import artefact_path
from receipt_pipeline.chain.ocr import RapidOcrEngine
from receipt_pipeline.chain.policy import Policy, load_policy
from receipt_pipeline.chain.revisions import CarriedChain, chain_named, chain_of_revision
from receipt_pipeline.chain.risk import RiskModel, load_risk_model
from receipt_pipeline.chain.stages import Chain, bind_stages, chain_revision
from receipt_pipeline.chain.values import OcrEngine
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.pins import Pins, Release
from receipt_pipeline.core.reasons import IDENTITY_MISMATCH, IDENTITY_MISSING, Reason

MODELS_FOLDER = "models"
POLICIES_FOLDER = "policies"
RELEASES_FOLDER = "releases"


@dataclass(frozen=True, slots=True)
class ShippedRelease:
    """A release template completed for this installation; `alias` is what set-up points at it."""

    name: str
    alias: str | None
    release: Release


def shipped_releases(shipped: Path, *, image_digest: str) -> tuple[ShippedRelease, ...]:
    """Complete every shipped template with the image digest, ordered by name.

    Args:
        shipped: the folder that holds `models/`, `policies/` and `releases/`.
        image_digest: of this installation, `sha256:` and 64 hex digits.
    """
    return tuple(
        _completed(path, image_digest=image_digest)
        for path in sorted((shipped / RELEASES_FOLDER).glob("*.json"))
    )


def verify_release(pins: Pins, *, shipped: Path, image_digest: str) -> Reason | None:
    """Return why this installation does not carry the pinned release, or None when it does."""
    try:
        _verified(pins, shipped=shipped, image_digest=image_digest)
    except IdentityMismatch as error:
        return error.reason
    return None


def load_chain(pins: Pins, *, shipped: Path, image_digest: str, engine: OcrEngine) -> Chain:
    """Load the chain that the pins name, after verifying every one of them.

    Raises:
        IdentityMismatch: IDENTITY.MISSING.v1 or IDENTITY.MISMATCH.v1, with the pin in the facts.
    """
    carried, model, policy = _verified(pins, shipped=shipped, image_digest=image_digest)
    if isinstance(engine, RapidOcrEngine):
        # The reader's own settings shape its output: with others than the pinned it is another chain.
        engine = engine.under(carried.settings)
        found = chain_revision(carried.stages(engine.settings))
        _same("chain_revision", expected=pins.chain_revision, found=found)
    parts = bind_stages(
        carried.stages(carried.settings),
        engine=engine,
        model=model,
        policy=policy,
        reading=carried.reading,
        judging=carried.judging,
    )
    return Chain(parts, judging=carried.judging)


def _completed(path: Path, *, image_digest: str) -> ShippedRelease:
    template = json.loads(path.read_bytes())
    release = Release(
        image_digest=image_digest,
        chain_revision=chain_named(template["chain"]).revision,
        feature_contract=template["feature_contract"],
        risk_model_digest=template["risk_model"],
        policy_revision=template["policy"],
    )
    return ShippedRelease(name=template["name"], alias=template["alias"], release=release)


def _verified(pins: Pins, *, shipped: Path, image_digest: str) -> tuple[CarriedChain, RiskModel, Policy]:
    """Return chain, model and policy of the pins; each is checked on its own so that the error names it."""
    _same("release_id", expected=pins.release_id, found=pins.release().release_id)
    _same("image_digest", expected=pins.image_digest, found=image_digest)
    carried = chain_of_revision(pins.chain_revision)
    if pins.feature_contract != carried.judging.contract:
        raise IdentityMismatch(IDENTITY_MISSING, artefact="feature_contract", expected=pins.feature_contract)
    model_path = artefact_path(shipped / MODELS_FOLDER, pins.risk_model_digest)
    model = load_risk_model(model_path, pins.risk_model_digest)
    _same("feature_contract", expected=pins.feature_contract, found=model.contract)
    policy = load_policy(artefact_path(shipped / POLICIES_FOLDER, pins.policy_revision), pins.policy_revision)
    _same("policy_contract", expected=carried.judging.policy_contract, found=policy.contract)
    return carried, model, policy


def _same(pin: str, *, expected: str, found: str) -> None:
    if expected != found:
        raise IdentityMismatch(IDENTITY_MISMATCH, artefact=pin, expected=expected, found=found)
