"""Releases and pins: the five identities that decide what a job's outcome may come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from receipt_pipeline.core.canonical import digest_of


@dataclass(frozen=True, slots=True)
class Release:
    """The bundle that is approved as one: image, chain, feature contract, risk model, policy.

    All but `feature_contract` (a versioned name such as `receipt-features/v1`) are
    `sha256:` digests.
    """

    image_digest: str
    chain_revision: str
    feature_contract: str
    risk_model_digest: str
    policy_revision: str

    @property
    def release_id(self) -> str:
        """Return the digest of the release's canonical JSON."""
        return digest_of(asdict(self))

    def pins(self) -> Pins:
        """Return the copy that is frozen into a job."""
        return Pins(release_id=self.release_id, **asdict(self))


@dataclass(frozen=True, slots=True)
class Pins:
    """The release's identities as frozen into one job at acceptance."""

    release_id: str
    image_digest: str
    chain_revision: str
    feature_contract: str
    risk_model_digest: str
    policy_revision: str

    def as_document(self) -> dict[str, str]:
        """Return the pins as the JSON object that jobs, results and receipts restate."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, str]) -> Pins:
        """Read pins back from the JSON object that `as_document` wrote."""
        return cls(**{field.name: document[field.name] for field in fields(cls)})

    def release(self) -> Release:
        """Return the release these pins were copied from."""
        return Release(
            image_digest=self.image_digest,
            chain_revision=self.chain_revision,
            feature_contract=self.feature_contract,
            risk_model_digest=self.risk_model_digest,
            policy_revision=self.policy_revision,
        )


def decision_id(*, job_id: str, item_id: str, pins: Pins) -> str:
    """Return the decision ID: it names the decision, never its output.

    Two different outputs of one decision therefore meet under one ID, as a visible conflict.
    """
    return digest_of({"job_id": job_id, "item_id": item_id, "pins": pins.as_document()})
