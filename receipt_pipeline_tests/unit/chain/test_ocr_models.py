"""The reader's models: copied once, hashed before use, refused when they are not the pinned ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from receipt_pipeline.chain.ocr import models as ocr_models
from receipt_pipeline.chain.ocr.models import OCR_MODELS, place_models
from receipt_pipeline.core.errors import IdentityMismatch


def test_models_lie_under_their_full_digest_and_hash_to_it(tmp_path: Path) -> None:
    files = place_models(tmp_path / "models")
    for role, path in (("det", files.det), ("rec", files.rec), ("cls", files.cls)):
        assert path.name == f"{OCR_MODELS[role]}.onnx"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == OCR_MODELS[role]
    assert len(list((tmp_path / "models").iterdir())) == 3


def test_placing_again_copies_nothing(tmp_path: Path) -> None:
    first = place_models(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert place_models(tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_an_altered_copy_is_refused_and_kept_as_evidence(tmp_path: Path) -> None:
    files = place_models(tmp_path)
    files.rec.write_bytes(b"something else")
    with pytest.raises(IdentityMismatch) as caught:
        place_models(tmp_path)
    assert caught.value.reason.code == "IDENTITY.MISMATCH.v1"
    assert caught.value.facts["artefact"] == "ocr model rec"
    assert files.rec.read_bytes() == b"something else"


def test_an_installation_without_models_is_named_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ocr_models, "installed_models_directory", lambda: tmp_path / "nowhere")
    with pytest.raises(IdentityMismatch) as caught:
        place_models(tmp_path / "models")
    assert caught.value.reason.code == "IDENTITY.MISSING.v1"


def test_an_installation_with_other_models_is_refused_and_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    for name in ocr_models.WHEEL_FILES.values():
        (installed / name).write_bytes(b"another release of the model")
    monkeypatch.setattr(ocr_models, "installed_models_directory", lambda: installed)
    with pytest.raises(IdentityMismatch) as caught:
        place_models(tmp_path / "models")
    assert caught.value.reason.code == "IDENTITY.MISMATCH.v1"
    assert list((tmp_path / "models").iterdir()) == []
