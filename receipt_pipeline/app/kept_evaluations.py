"""Keeps evaluations beside the ledger: out of sight until they are on record, and then in their place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.durable_files import write_whole

DOCUMENT, PAGE = "json", "html"
DIGEST_DIGITS = 16


@dataclass(frozen=True, slots=True)
class KeptEvaluations:
    """The documents and pages of a home's evaluations, one pair a release.

    A pair is written under hidden names, recorded, and then takes the place of the one before. What a
    crash left unrecorded is never shown; what it left recorded is put in its place by the next reader.
    """

    folder: Path

    def place(self, release_id: str, ending: str) -> Path:
        """Return where the document or the page of a release's evaluation on record lies."""
        return self.folder / f"{_stem(release_id)}.{ending}"

    def write_aside(self, release_id: str, *, document: bytes, page: bytes) -> str:
        """Write a pair out of sight; returns the document's digest, which is to be recorded."""
        digest = digest_of_bytes(document)
        write_whole(self._aside(release_id, digest, PAGE), page)
        write_whole(self._aside(release_id, digest, DOCUMENT), document)
        return digest

    def settle(self, release_id: str, digest: str) -> None:
        """Put the recorded pair in its place, the document last, and drop pairs that never were recorded."""
        for ending in (PAGE, DOCUMENT):
            aside = self._aside(release_id, digest, ending)
            if aside.exists():
                aside.replace(self.place(release_id, ending))
        for ending in (PAGE, DOCUMENT):
            for left in self.folder.glob(f".{_stem(release_id)}.*.{ending}"):
                left.unlink(missing_ok=True)

    def document(self, release_id: str, digest: str) -> bytes | None:
        """Return the recorded document; None when what is kept has another digest or is not there."""
        data = _read(self.place(release_id, DOCUMENT))
        if digest_of_bytes(data) != digest:
            self.settle(release_id, digest)
            data = _read(self.place(release_id, DOCUMENT))
        return data if digest_of_bytes(data) == digest else None

    def _aside(self, release_id: str, digest: str, ending: str) -> Path:
        mark = digest.removeprefix("sha256:")[:DIGEST_DIGITS]
        return self.folder / f".{_stem(release_id)}.{mark}.{ending}"


def _stem(release_id: str) -> str:
    return release_id.removeprefix("sha256:")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
