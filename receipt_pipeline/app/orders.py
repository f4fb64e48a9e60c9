"""What people ask of a home and order it to do: submit, read, cancel, release, decide, review."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from receipt_pipeline.app.passes import Passes
from receipt_pipeline.app.setup import drop_samples
from receipt_pipeline.chain.artefact import artefact_path
from receipt_pipeline.chain.policy import load_policy
from receipt_pipeline.chain.release import POLICIES_FOLDER, shipped_releases
from receipt_pipeline.core.audiences import ROLES_OF_AUDIENCE, Audience
from receipt_pipeline.core.errors import IdentityMismatch, InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.principals import Role, require
from receipt_pipeline.core.reasons import (
    FIELD_INVALID,
    NOT_FOUND,
    RELEASE_LAST_LIVE,
)
from receipt_pipeline.core.request import DEFAULT_RELEASE
from receipt_pipeline.effects.results import read_rejections, read_result
from receipt_pipeline.intake.scans import read_one_scan
from receipt_pipeline.intake.submit import submit_paths
from receipt_pipeline.ledger.effects.consumption import close_review_task
from receipt_pipeline.ledger.investigations import (
    InvestigationKind,
    assign_investigation,
    list_investigations,
    read_investigation,
)
from receipt_pipeline.ledger.releases import (
    approved_release_ids,
    list_releases,
    resolve_release,
    retire_release,
)
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.standing_facts import OBJECT_KINDS
from receipt_pipeline.ledger.status import list_jobs, list_review_tasks, read_status, unfinished_jobs
from receipt_pipeline.ledger.submissions import submission_status
from receipt_pipeline.reconciliation.quarantine import resolve_quarantine
from receipt_pipeline.reconciliation.repair import answer_question
from receipt_pipeline.worker.classify_now import classify_now


class Orders(Passes):
    """Questions and orders of the submitter, the operator and the reviewer."""

    def submit(
        self, paths: Sequence[Path], *, key: str | None, new: bool, release: str | None
    ) -> list[dict[str, Any]]:
        """Hand in manifests, folders and scans; returns one answer per delivery, a line per row."""
        answers = submit_paths(
            self.intake, paths, principal=self.principal, key=key, new=new, release=release
        )
        return [answer.as_document() for answer in answers]

    def drop_samples(self) -> str:
        """Drop the shipped samples and their manifest into the inbox; returns the manifest's key."""
        return drop_samples(self.settings.shipped / "samples", self.settings.inbox / self.settings.tenant)

    def status(self, job_id: str, *, audience: str = "customer") -> dict[str, Any]:
        """Return a job's status document for one audience, which must be the asker's own."""
        with self.ledger.reading() as tx:
            require(self.principal, *ROLES_OF_AUDIENCE[Audience(audience)], record=read_job(tx, job_id))
            return read_status(tx, job_id, tenant=self.settings.tenant, audience=audience)

    def submission(self, submission_id: str) -> dict[str, Any]:
        """Return where a delivery of the tenant stands."""
        require(self.principal, *Role)
        with self.ledger.reading() as tx:
            return submission_status(tx, submission_id, tenant=self.settings.tenant)

    def jobs(self, *, state: JobState | None = None) -> list[dict[str, Any]]:
        """Return the tenant's jobs, newest first."""
        require(self.principal, *Role)
        with self.ledger.reading() as tx:
            return list_jobs(tx, tenant=self.settings.tenant, state=state)

    def result(self, job_id: str) -> dict[str, Any]:
        """Return a closed job's items with fields and decisions, verified."""
        self._may_read(job_id)
        return read_result(self.effects, job_id, tenant=self.settings.tenant)

    def rejections(self, job_id: str) -> list[dict[str, str]]:
        """Return why validation refused which items of a closed job, and what to do about each (R101)."""
        self._may_read(job_id)
        with self.ledger.reading() as tx:
            return read_rejections(tx, job_id, tenant=self.settings.tenant)

    def unsettled(self, job_ids: Sequence[str]) -> list[str]:
        """Return the terminal jobs whose tasks or notification have not had their turn."""
        with self.ledger.reading() as tx:
            return unfinished_jobs(tx, job_ids)

    def classify_now(self, scan: Path, *, release: str | None) -> dict[str, Any]:
        """Answer one scan now under what the release or alias means now; no job."""
        require(self.principal, Role.SUBMITTER)
        data = read_one_scan(scan, size_bytes_max=self.intake.scan_size_bytes_max)
        return classify_now(
            self.ledger, self.chains, data, release=release or DEFAULT_RELEASE, tenant=self.settings.tenant
        )

    def _may_read(self, job_id: str) -> None:
        with self.ledger.reading() as tx:
            require(self.principal, *Role, record=read_job(tx, job_id))

    # Releases.

    def releases(self) -> list[dict[str, Any]]:
        """Return every release with the aliases that point at it and the review rate its policy states.

        The rate is that of genuine receipts, in parts per million; None where the policy states none or
        is not here.
        """
        with self.ledger.reading() as tx:
            rows = list_releases(tx)
        return [row | {"review_rate_ppm": self._review_rate_ppm(row["policy_revision"])} for row in rows]

    def _review_rate_ppm(self, revision: str) -> int | None:
        try:
            policy = load_policy(artefact_path(self.settings.shipped / POLICIES_FOLDER, revision), revision)
        except IdentityMismatch:
            return None
        return policy.review_rate_ppm or None

    def release_named(self, name: str) -> str:
        """Return the id of a shipped release by its template's alias or name."""
        for shipped in shipped_releases(self.settings.shipped, image_digest=self.image_digest):
            if name in (shipped.alias, shipped.name):
                return shipped.release.release_id
        raise NotFound(NOT_FOUND, release=name)

    def retire_release(self, written: str, *, even_the_last: bool = False) -> str:
        """Retire a release, named by name or id; returns its id.

        Raises:
            NotAllowed: RELEASE.LAST_LIVE.v1 when no other is left, unless `even_the_last`.
        """
        require(self.principal, Role.OPERATOR)
        with self.ledger.transaction() as tx:
            release_id = str(resolve_release(tx, written)["release_id"])
            if approved_release_ids(tx) == [release_id] and not even_the_last:
                raise NotAllowed(RELEASE_LAST_LIVE, release_id=release_id)
            retire_release(tx, release_id=release_id, retired_by=self.settings.caller)
            return release_id

    # Investigations and review.

    def investigations(self, *, only_open: bool) -> list[dict[str, Any]]:
        """Return the tenant's investigations, and those about nobody's objects, nearest deadline first."""
        require(self.principal, Role.OPERATOR, Role.ANALYST)
        with self.ledger.reading() as tx:
            return list_investigations(tx, only_open=only_open, tenant=self.settings.tenant)

    def assign_investigation(self, investigation_id: str, *, owner: str) -> None:
        """Give an investigation to an active principal."""
        require(self.principal, Role.OPERATOR)
        with self.ledger.transaction() as tx:
            read_investigation(tx, investigation_id, tenant=self.settings.tenant)
            assign_investigation(
                tx, investigation_id, owner=owner, actor=self.settings.caller, limits=self.settings.limits
            )

    def resolve_investigation(
        self, investigation_id: str, *, note: str, keep: str | None, withdraw: bool
    ) -> None:
        """Record a decision; a quarantine's also says which digest stands, or that none does.

        Raises:
            NotAllowed: INVESTIGATION.FACT_STANDS.v1 while what is asked about is still so.
        """
        require(self.principal, Role.OPERATOR)
        if not (note.strip() or keep or withdraw):
            raise InputRefused(FIELD_INVALID, pointer="--note", wanted="what was found and decided")
        with self.ledger.reading() as tx:
            row = read_investigation(tx, investigation_id, tenant=self.settings.tenant)
        _check_decision(row["kind"], keep=keep, withdraw=withdraw)
        if row["kind"] == InvestigationKind.DIVERGENT_OUTPUT and row["state"] == "open":
            resolve_quarantine(
                self.reconciler,
                job_id=row["job_id"],
                actor=self.settings.caller,
                keep=keep,
                withdraw=withdraw,
                note=note,
            )
            return
        answer_question(
            self.reconciler,
            investigation_id,
            note=note,
            actor=self.settings.caller,
            withdraw=withdraw and row["kind"] in OBJECT_KINDS,
        )

    def review_tasks(self, *, only_open: bool, job_id: str | None = None) -> list[dict[str, Any]]:
        """Return the tenant's review tasks, oldest first."""
        require(self.principal, Role.REVIEWER, Role.OPERATOR)
        with self.ledger.reading() as tx:
            return list_review_tasks(tx, tenant=self.settings.tenant, only_open=only_open, job_id=job_id)

    def finish_review_task(self, decision_id: str) -> None:
        """Mark one open task as done."""
        require(self.principal, Role.REVIEWER)
        with self.ledger.transaction() as tx:
            close_review_task(
                tx, decision_id=decision_id, tenant=self.settings.tenant, actor=self.settings.caller
            )


def _check_decision(kind: str, *, keep: str | None, withdraw: bool) -> None:
    """Refuse a decision that its kind of question does not take."""
    given = (bool(keep), withdraw)
    if kind == InvestigationKind.DIVERGENT_OUTPUT:
        fits, wanted = given in ((True, False), (False, True)), "--keep DIGEST or --withdraw"
    elif kind in OBJECT_KINDS:
        fits, wanted = not keep, "--withdraw, or a note once the object is restored"
    else:
        fits, wanted = given == (False, False), "neither --keep nor --withdraw"
    if not fits:
        raise InputRefused(FIELD_INVALID, pointer="investigation", wanted=wanted)
