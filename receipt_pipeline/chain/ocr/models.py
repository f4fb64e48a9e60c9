"""The models of the text reader, pinned by digest and hashed before each use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.reasons import IDENTITY_MISMATCH, IDENTITY_MISSING
from receipt_pipeline.durable_files import write_whole

# SHA-256 of the PP-OCR models that rapidocr 3.10 ships: text detection, recognition, turn classification.
OCR_MODELS: Mapping[str, str] = MappingProxyType(
    {
        "det": "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
        "rec": "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
        "cls": "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    }
)
WHEEL_FILES: Mapping[str, str] = MappingProxyType(
    {"det": "PP-OCRv6_det_small.onnx", "rec": "PP-OCRv6_rec_small.onnx", "cls": "ch_ppocr_mobile_v2.0_cls_mobile.onnx"}
)


@dataclass(frozen=True, slots=True)
class OcrModelFiles:
    """The three model files, each verified against its digest in `OCR_MODELS`."""

    det: Path
    rec: Path
    cls: Path


def place_models(directory: Path) -> OcrModelFiles:
    """Copy the installed models once to `<directory>/<digest>.onnx` and verify what is there.

    Raises:
        IdentityMismatch: IDENTITY.MISSING when neither the copy nor the installed model exists,
            IDENTITY.MISMATCH when its bytes do not hash to the pin. A wrong copy is left as evidence.
    """
    directory.mkdir(parents=True, exist_ok=True)
    return OcrModelFiles(**{role: _placed(directory, role) for role in OCR_MODELS})


def installed_models_directory() -> Path:
    """Return the folder in which the installed reader keeps its models."""
    spec = find_spec("rapidocr")
    if spec is None or spec.origin is None:
        raise IdentityMismatch(IDENTITY_MISSING, artefact="rapidocr")
    return Path(spec.origin).parent / "models"


def _placed(directory: Path, role: str) -> Path:
    digest = OCR_MODELS[role]
    target = directory / f"{digest}.onnx"
    if not target.exists():
        write_whole(target, _read_verified(installed_models_directory() / WHEEL_FILES[role], role))
    _read_verified(target, role)
    return target


def _read_verified(path: Path, role: str) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise IdentityMismatch(IDENTITY_MISSING, artefact=f"ocr model {role}", digest=OCR_MODELS[role]) from error
    found = hashlib.sha256(data).hexdigest()
    if found != OCR_MODELS[role]:
        raise IdentityMismatch(IDENTITY_MISMATCH, artefact=f"ocr model {role}", digest=OCR_MODELS[role], found=found)
    return data
