"""Releases: templates completed for an installation, and pins that only load what they name."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from receipt_pipeline.chain.features.table import FEATURE_CONTRACT
from receipt_pipeline.chain.ocr.engine import LIBRARIES, OcrSettings, RapidOcrEngine
from receipt_pipeline.chain.ocr.models import OcrModelFiles
from receipt_pipeline.chain.pipeline import chain_revision
from receipt_pipeline.chain.release import (
    artifact_path,
    installed_image_digest,
    load_chain,
    load_policy,
    load_risk_model,
    shipped_releases,
    verify_release,
)
from receipt_pipeline.chain.risk import score
from receipt_pipeline.chain.values import Features
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes, is_digest
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.pins import Pins, Release
from receipt_pipeline.settings import SHIPPED_ARTIFACTS as SHIPPED
from receipt_pipeline_tests.fakes.scripted_ocr import ScriptedOcr

IMAGE = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    for folder in ("models", "policies", "releases"):
        shutil.copytree(SHIPPED / folder, tmp_path / folder)
    return tmp_path


def release_of(shipped: Path, alias: str = "production") -> Release:
    return next(one.release for one in shipped_releases(shipped, image_digest=IMAGE) if one.alias == alias)


def refusal(pins: Pins, shipped: Path) -> IdentityMismatch:
    with pytest.raises(IdentityMismatch) as caught:
        load_chain(pins, shipped=shipped, image_digest=IMAGE, engine=ScriptedOcr())
    assert verify_release(pins, shipped=shipped, image_digest=IMAGE) == caught.value.reason
    return caught.value


def test_two_releases_ship_over_one_chain_that_differ_in_model_and_policy() -> None:
    ships = shipped_releases(SHIPPED, image_digest=IMAGE)
    assert [(one.name, one.alias) for one in ships] == [("2027-01", "previous"), ("2027-02", "production")]
    previous, production = (one.release for one in ships)
    assert previous.chain_revision == production.chain_revision == chain_revision()
    assert previous.feature_contract == production.feature_contract == FEATURE_CONTRACT
    assert previous.risk_model_digest != production.risk_model_digest
    assert previous.policy_revision != production.policy_revision
    assert previous.release_id != production.release_id


def test_every_pin_of_a_shipped_release_is_a_digest_or_a_versioned_name() -> None:
    for one in shipped_releases(SHIPPED, image_digest=IMAGE):
        release = one.release
        digests = (
            release.image_digest, release.chain_revision, release.risk_model_digest, release.policy_revision
        )  # fmt: skip
        assert all(map(is_digest, digests))
        assert release.feature_contract == FEATURE_CONTRACT


@pytest.mark.parametrize("folder", ["models", "policies"])
def test_shipped_artifacts_are_canonical_and_named_by_their_digest(folder: str) -> None:
    for path in (SHIPPED / folder).iterdir():
        data = path.read_bytes()
        assert digest_of_bytes(data) == f"sha256:{path.stem}"
        assert canonical_json(json.loads(data)) == data


def test_no_artifact_ships_that_no_release_names() -> None:
    releases = [one.release for one in shipped_releases(SHIPPED, image_digest=IMAGE)]
    assert {path.stem for path in (SHIPPED / "models").iterdir()} == {
        release.risk_model_digest[7:] for release in releases
    }
    assert {path.stem for path in (SHIPPED / "policies").iterdir()} == {
        release.policy_revision[7:] for release in releases
    }


def test_the_shipped_releases_decide_differently() -> None:
    releases = [one.release for one in shipped_releases(SHIPPED, image_digest=IMAGE)]
    models = [load_risk_model(SHIPPED, release.risk_model_digest) for release in releases]
    names = {name for model in models for name in model.features}
    doubtful = Features(FEATURE_CONTRACT, dict.fromkeys(names, 1.0))
    assert score(models[0], doubtful) != score(models[1], doubtful)
    policies = [load_policy(SHIPPED, release.policy_revision) for release in releases]
    assert policies[0].risk_review_ppm != policies[1].risk_review_ppm


@pytest.mark.parametrize("alias", ["production", "previous"])
def test_the_stated_review_rate_is_that_of_genuine_texts_out_of_fold(alias: str) -> None:
    release = release_of(SHIPPED, alias)
    policy = load_policy(SHIPPED, release.policy_revision)
    model = json.loads(artifact_path(SHIPPED / "models", release.risk_model_digest).read_bytes())
    below = str(100 - policy.review_rate_ppm // 10_000)
    assert 0 <= policy.risk_review_ppm / 1_000_000 - model["calibration"]["genuine_texts"][below] < 0.01


@pytest.mark.parametrize("alias", ["production", "previous"])
def test_a_shipped_release_verifies_and_loads(shipped: Path, alias: str) -> None:
    pins = release_of(shipped, alias).pins()
    assert verify_release(pins, shipped=shipped, image_digest=IMAGE) is None
    chain = load_chain(pins, shipped=shipped, image_digest=IMAGE, engine=ScriptedOcr())
    assert chain.parts.risk.artifact_digest == pins.risk_model_digest
    assert chain.parts.policy.artifact_digest == pins.policy_revision


@pytest.mark.parametrize(
    ("pin", "value", "code"),
    [
        ("image_digest", OTHER, "IDENTITY.MISMATCH.v1"),
        ("chain_revision", OTHER, "IDENTITY.MISSING.v1"),
        ("feature_contract", "receipt-features/v9", "IDENTITY.MISSING.v1"),
        ("risk_model_digest", OTHER, "IDENTITY.MISSING.v1"),
        ("policy_revision", OTHER, "IDENTITY.MISSING.v1"),
    ],
)
def test_a_release_with_another_pin_is_not_supported_here_and_the_pin_is_named(
    shipped: Path, pin: str, value: str, code: str
) -> None:
    error = refusal(replace(release_of(shipped), **{pin: value}).pins(), shipped)
    assert error.reason.code == code
    assert str(error.facts["artefact"]) in (pin, pin.removesuffix("_digest"), pin.removesuffix("_revision"))


def test_pins_that_do_not_make_up_their_release_are_refused(shipped: Path) -> None:
    error = refusal(replace(release_of(shipped).pins(), release_id=OTHER), shipped)
    assert (error.reason.code, error.facts["artefact"]) == ("IDENTITY.MISMATCH.v1", "release_id")


@pytest.mark.requirement("R037")
@pytest.mark.parametrize(("folder", "artefact"), [("models", "risk_model"), ("policies", "policy")])
def test_a_tampered_package_is_refused_at_load(shipped: Path, folder: str, artefact: str) -> None:
    for path in (shipped / folder).iterdir():
        path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    error = refusal(release_of(shipped).pins(), shipped)
    assert (error.reason.code, error.facts["artefact"]) == ("IDENTITY.MISMATCH.v1", artefact)


def test_a_model_of_another_contract_than_the_pinned_is_refused(shipped: Path) -> None:
    release = release_of(shipped)
    path = shipped / "models" / f"{release.risk_model_digest[7:]}.json"
    other = canonical_json({**json.loads(path.read_bytes()), "contract": "receipt-features/v0"})
    digest = digest_of_bytes(other)
    (shipped / "models" / f"{digest[7:]}.json").write_bytes(other)
    error = refusal(replace(release, risk_model_digest=digest).pins(), shipped)
    assert (error.reason.code, error.facts["artefact"]) == ("IDENTITY.MISMATCH.v1", "feature_contract")


def test_a_pin_that_is_no_digest_never_becomes_a_path(shipped: Path) -> None:
    error = refusal(replace(release_of(shipped), risk_model_digest="../releases/2027-01").pins(), shipped)
    assert error.reason.code == "IDENTITY.MISMATCH.v1"


def test_a_reader_with_other_settings_than_the_pinned_is_refused(shipped: Path) -> None:
    nowhere = OcrModelFiles(det=Path("det"), rec=Path("rec"), cls=Path("cls"))
    engine = RapidOcrEngine(nowhere, OcrSettings(recognition_batch=7))
    with pytest.raises(IdentityMismatch) as caught:
        load_chain(release_of(shipped).pins(), shipped=shipped, image_digest=IMAGE, engine=engine)
    assert caught.value.facts["artefact"] == "chain_revision"


def test_the_image_digest_covers_chain_and_core_and_nothing_else(tmp_path: Path) -> None:
    for package in ("chain", "core", "cli"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "code.py").write_text("A = 1\n")
    first = installed_image_digest(tmp_path)
    (tmp_path / "cli" / "code.py").write_text("A = 2\n")
    (tmp_path / "chain" / "code.pyc").write_text("not source")
    assert installed_image_digest(tmp_path) == first
    (tmp_path / "core" / "code.py").write_text("A = 2\n")
    second = installed_image_digest(tmp_path)
    (tmp_path / "chain" / "words.txt").write_text("TOTAL")
    assert len({first, second, installed_image_digest(tmp_path)}) == 3


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_image_digest_follows_the_libraries_that_shape_results(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = installed_image_digest(tmp_path)
    monkeypatch.setattr("receipt_pipeline.chain.release.version", lambda name: "0" if name == library else "1")
    changed = installed_image_digest(tmp_path)
    monkeypatch.setattr("receipt_pipeline.chain.release.version", lambda name: "1")
    assert len({before, changed, installed_image_digest(tmp_path)}) == 3
