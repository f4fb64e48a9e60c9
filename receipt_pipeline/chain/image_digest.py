"""The image digest of an installation that no container names: what can shape a result, hashed."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from receipt_pipeline.core.canonical import digest_of, digest_of_bytes

RESULT_SHAPING_ROOMS = ("chain", "core")
RESULT_SHAPING_LIBRARIES = (
    "numpy",
    "onnxruntime",
    "opencv-python-headless",
    "pillow",
    "pillow-heif",
    "pypdfium2",
    "rapidocr",
)


def installed_image_digest(package_root: Path) -> str:
    """Return the digest over the sources of chain and core and the libraries that shape results.

    Nothing else enters: a changed door, sensor or report leaves the digest as it was.

    Args:
        package_root: the folder that holds `chain/` and `core/`.
    """
    sources = {
        path.relative_to(package_root).as_posix(): digest_of_bytes(path.read_bytes())
        for room in RESULT_SHAPING_ROOMS
        for path in sorted((package_root / room).rglob("*.py"))
    }
    libraries = {name: version(name) for name in RESULT_SHAPING_LIBRARIES}
    return digest_of({"sources": sources, "libraries": libraries})
