"""Releases: shipped templates completed for one installation, and pins turned into a loaded chain."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from receipt_pipeline.chain.features.table import FEATURE_CONTRACT
from receipt_pipeline.chain.ocr.engine import LIBRARIES, RapidOcrEngine
from receipt_pipeline.chain.pipeline import Chain, bind_stages, chain_revision, chain_stages
from receipt_pipeline.chain.policy import Policy
from receipt_pipeline.chain.risk import RiskModel
from receipt_pipeline.chain.values import OcrEngine
from receipt_pipeline.core.canonical import digest_of, digest_of_bytes, is_digest
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.pins import Pins, Release
from receipt_pipeline.core.reasons import IDENTITY_MISMATCH, IDENTITY_MISSING, Reason

MODELS_FOLDER = "models"
POLICIES_FOLDER = "policies"
RELEASES_FOLDER = "releases"
RESULT_SHAPING_PACKAGES = ("chain", "core")
RESULT_SHAPING_SUFFIXES = frozenset({".py", ".toml", ".txt"})


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
        _completed(path, image_digest=image_digest) for path in sorted((shipped / RELEASES_FOLDER).glob("*.json"))
    )


def verify_release(pins: Pins, *, shipped: Path, image_digest: str) -> Reason | None:
    """Return why this installation does not support the pinned release, or None when it does."""
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
    model, policy = _verified(pins, shipped=shipped, image_digest=image_digest)
    if isinstance(engine, RapidOcrEngine):
        # The reader's own settings shape its output: with others than the pinned it is another chain.
        found = chain_revision(chain_stages(engine.settings))
        _same("chain_revision", expected=pins.chain_revision, found=found)
    return Chain(bind_stages(engine=engine, model=model, policy=policy))


def load_risk_model(shipped: Path, digest: str) -> RiskModel:
    """Load a shipped risk model by its digest. Raises IdentityMismatch as `read_artifact` does."""
    document = read_artifact(shipped / MODELS_FOLDER, digest, kind="risk_model")
    return RiskModel.from_document(document, digest=digest)


def load_policy(shipped: Path, revision: str) -> Policy:
    """Load a shipped policy by its digest. Raises IdentityMismatch as `read_artifact` does."""
    document = read_artifact(shipped / POLICIES_FOLDER, revision, kind="policy")
    return Policy.from_document(document, revision=revision)


def artifact_path(directory: Path, digest: str) -> Path:
    """Return where an artifact of that digest is: `<64 hex digits>.json`.

    Raises:
        IdentityMismatch: IDENTITY.MISMATCH.v1 when the text is no digest, so that it never forms a path.
    """
    if not is_digest(digest):
        raise IdentityMismatch(IDENTITY_MISMATCH, artefact=directory.name, detail="the pin is no digest")
    return directory / f"{digest.removeprefix('sha256:')}.json"


def read_artifact(directory: Path, digest: str, *, kind: str) -> dict[str, Any]:
    """Read a JSON artifact whose bytes must hash to the digest that names it.

    Args:
        kind: what it is (`risk_model`, `policy`), named in the error.
    Raises:
        IdentityMismatch: IDENTITY.MISSING.v1 when the file is not there, IDENTITY.MISMATCH.v1 when
            its bytes hash to something else.
    """
    try:
        data = artifact_path(directory, digest).read_bytes()
    except OSError as error:
        raise IdentityMismatch(IDENTITY_MISSING, artefact=kind, expected=digest) from error
    _same(kind, expected=digest, found=digest_of_bytes(data))
    document = json.loads(data)
    assert isinstance(document, dict), kind
    return document


def installed_image_digest(package_root: Path) -> str:
    """Return the digest of an installation that no container names: all that can shape a result, hashed.

    Nothing but the files of chain and core and the libraries under them enters: a changed command, sensor
    or report leaves the digest as it was.

    Args:
        package_root: the folder that holds `chain/` and `core/`.
    """
    sources = {
        path.relative_to(package_root).as_posix(): digest_of_bytes(path.read_bytes())
        for package in RESULT_SHAPING_PACKAGES
        for path in sorted((package_root / package).rglob("*"))
        if path.suffix in RESULT_SHAPING_SUFFIXES
    }
    return digest_of({"sources": sources, "libraries": {name: version(name) for name in LIBRARIES}})


def _completed(path: Path, *, image_digest: str) -> ShippedRelease:
    template = json.loads(path.read_bytes())
    release = Release(
        image_digest=image_digest,
        chain_revision=chain_revision(),
        feature_contract=template["feature_contract"],
        risk_model_digest=template["risk_model"],
        policy_revision=template["policy"],
    )
    return ShippedRelease(name=template["name"], alias=template["alias"], release=release)


def _verified(pins: Pins, *, shipped: Path, image_digest: str) -> tuple[RiskModel, Policy]:
    """Return model and policy of the pins; each pin is checked on its own so that the error names it."""
    _same("release_id", expected=pins.release_id, found=pins.release().release_id)
    _same("image_digest", expected=pins.image_digest, found=image_digest)
    if pins.chain_revision != chain_revision():
        raise IdentityMismatch(IDENTITY_MISSING, artefact="chain_revision", expected=pins.chain_revision)
    if pins.feature_contract != FEATURE_CONTRACT:
        raise IdentityMismatch(IDENTITY_MISSING, artefact="feature_contract", expected=pins.feature_contract)
    model = load_risk_model(shipped, pins.risk_model_digest)
    _same("feature_contract", expected=pins.feature_contract, found=model.contract)
    return model, load_policy(shipped, pins.policy_revision)


def _same(pin: str, *, expected: str, found: str) -> None:
    if expected != found:
        raise IdentityMismatch(IDENTITY_MISMATCH, artefact=pin, expected=expected, found=found)
