"""What a drill did and saw: jobs, steps with expectation and observation, verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from receipt_pipeline.app import submitter
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.core.audiences import Audience
from receipt_pipeline.core.receipt_text import render_receipt


@dataclass(slots=True)
class DrillLog:
    """Collects the steps of one drill; the verdict is `pass` only when every step held."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)

    def job(self, name: str, job_id: str, what: str) -> None:
        """Note a job of the drill."""
        self.jobs.append({"name": name, "job_id": job_id, "what": what})

    def job_id(self, name: str) -> str:
        """Return the id of a job by its name in the drill."""
        return str(next(job["job_id"] for job in self.jobs if job["name"] == name))

    def step(self, name: str, expected: Any, observed: Any) -> None:
        """Note what was expected and what was seen."""
        self.steps.append(
            {"name": name, "expected": expected, "observed": observed, "ok": expected == observed}
        )

    def answer(self, report: dict[str, Any], services: AppContext) -> dict[str, Any]:
        """Return the drill's document; all of it can be recounted from `records`, its jobs' journal."""
        jobs = []
        for job in self.jobs:
            status = submitter.read_status(services, services.principal(), job["job_id"])
            jobs.append(
                job
                | {name: status[name] for name in ("state", "phase", "terminal_class")}
                | {"reason": (status["reason"] or {}).get("code", "")}
            )
        passed = bool(self.steps) and all(step["ok"] for step in self.steps)
        verdict = "pass" if passed else "fail"
        return {
            "jobs": jobs,
            "steps": self.steps,
            "report": report,
            "receipts": self._receipts(services),
            "records": self._records(services),
            "verdict": verdict,
        }

    def _receipts(self, services: AppContext) -> dict[str, str]:
        """Return each job's completion receipt as text, by its name in the drill."""
        return {
            job["name"]: render_receipt(submitter.read_status(services, services.principal(), job["job_id"]))
            for job in self.jobs
        }

    def _records(self, services: AppContext) -> list[dict[str, Any]]:
        """Return every event of every job in order, as the engineering view tells it."""
        told = [
            {"job": job["name"], "job_id": job["job_id"]} | event
            for job in self.jobs
            for event in submitter.read_status(
                services, services.principal(), job["job_id"], audience=Audience.ENGINEERING
            )["trail"]
        ]
        return sorted(told, key=lambda event: event["seq"])
