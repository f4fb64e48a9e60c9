"""Whatever happened and whenever it was refreshed: a refreshed report is the one that is built anew."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from receipt_pipeline.accounting import publish
from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.core.alerts import AlertKind
from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.items import Decision
from receipt_pipeline.effects.consume import receive_event
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.effects.alerts import AlertFinding, record_alert_delivery, record_alerts
from receipt_pipeline.ledger.effects.objects import (
    ObjectObservation,
    ObjectOutcome,
    record_first_checks,
    record_object_check,
)
from receipt_pipeline.ledger.effects.retention import forget_diagnostics, record_purged
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.investigations import InvestigationKind
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.expire import expire_job
from receipt_pipeline.ledger.jobs.quarantine import record_rejected_write
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline.ledger.submissions import NewSubmission, SubmissionState, finish_submission, open_submission
from receipt_pipeline_tests.builders import (
    LIMITS,
    a_claimed_job,
    a_rejection,
    an_accepted_job,
    an_outcome,
    finish_items,
)
from receipt_pipeline_tests.fakes.accounted_home import a_question, an_accountant, an_outcome_of, round_of_effects
from receipt_pipeline_tests.fakes.effects_home import a_stored_success, an_event, effects_home, rows_of
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.report_rows import built_whole, everything_in, refreshes

COMMANDS = 30


class History:
    """A ledger to which things happen, chosen by dice."""

    def __init__(self, services: EffectContext, clock: FakeClock, dice: random.Random) -> None:
        self.services, self.clock, self.dice = services, clock, dice
        self.waiting: list[str] = []

    def step(self) -> None:
        happenings: list[Callable[[], Any]] = [
            lambda: an_accepted_job(self.services.ledger),
            lambda: a_stored_success(self.services, an_outcome_of(self.dice.randrange(10_000))),
            lambda: a_stored_success(self.services, an_outcome(Decision.REVIEW), a_rejection(), items=2),
            lambda: finish_items(self.services.ledger, a_claimed_job(self.services.ledger)),
            lambda: round_of_effects(self.services),
            lambda: self.clock.advance(self.dice.choice([1, 3_600, 86_400])),
            *(
                self.end,
                self.hear_again,
                self.ask,
                self.look,
                self.forget,
                self.accept_manifest,
                self.warn,
                self.refuse,
            ),
        ]
        self.dice.choice(happenings)()

    def a_job(self, *states: str) -> dict[str, Any] | None:
        found = rows_of(self.services, select(jobs).where(jobs.c.state.in_(states)).order_by(jobs.c.job_id))
        return self.dice.choice(found) if found else None

    def end(self) -> None:
        if job := self.a_job("accepted"):
            with self.services.ledger.transaction() as tx:
                if not expire_job(tx, job_id=job["job_id"], limits=LIMITS):
                    cancel_job(tx, job_id=job["job_id"], limits=LIMITS)

    def hear_again(self) -> None:
        if job := self.a_job("succeeded"):
            event = an_event(job, f"again-{self.dice.randrange(9)}")
            receive_event(self.services, event, source="notification")

    def ask(self) -> None:
        if job := self.a_job("running", "succeeded"):
            a_question(self.services, self.dice.choice(list(InvestigationKind)), job["job_id"])

    def look(self) -> None:
        job = self.a_job("succeeded")
        outcome = self.dice.choice(list(ObjectOutcome))
        with self.services.ledger.transaction() as tx:
            if job is None:
                record_object_check(
                    tx, ObjectObservation(object_key="results/nobody/1-aa", job_id=None, outcome=ObjectOutcome.ORPHAN)
                )
            elif outcome is ObjectOutcome.OK:
                found = ObjectObservation(
                    job["result_key"], job["job_id"], outcome, found_digest=job["result_digest"], pins_stated=True
                )
                record_first_checks(tx, [found])
            else:
                record_object_check(
                    tx, ObjectObservation(object_key=job["result_key"], job_id=job["job_id"], outcome=outcome)
                )

    def forget(self) -> None:
        if job := self.a_job("succeeded", "failed", "canceled"):
            with self.services.ledger.transaction() as tx:
                self.dice.choice([forget_diagnostics, _purge])(tx, job["job_id"])

    def accept_manifest(self) -> None:
        with self.services.ledger.transaction() as tx:
            if self.waiting and self.dice.random() < 0.6:
                finish_submission(tx, self.waiting.pop(0), state=SubmissionState.REFUSED, rows_total=0)
            else:
                named: dict[str, Any] = {"tenant": "acme", "caller": "kim", "door": "inbox", "label": "x"}
                self.waiting.append(open_submission(tx, NewSubmission(document_digest="d", **named)))

    def warn(self) -> None:
        found = [AlertFinding(AlertKind.TEST, f"subject {self.dice.randrange(3)}", None, {})]
        with self.services.ledger.transaction() as tx:
            raised, _ = record_alerts(tx, found[: self.dice.randrange(2)], kinds=[AlertKind.TEST])
            for alert_id in raised:
                record_alert_delivery(tx, alert_id, channel="file", outcome="delivered")

    def refuse(self) -> None:
        if job := self.a_job("running", "succeeded"):
            with self.services.ledger.transaction() as tx:
                record_rejected_write(
                    tx, FencingToken(job["job_id"], 0), write_kind="checkpoint", ordinal=0, digest="d"
                )


def _purge(tx: Any, job_id: str) -> None:
    record_purged(tx, job_id=job_id)


@pytest.fixture
def ledger(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[Ledger]:
    opened = open_ledger(request.getfixturevalue(f"{request.param}_ledger_url"), clock=clock)
    yield opened
    opened.close()


# Two histories on each kind of ledger; none is told on both, so that each costs once and shows more.
@pytest.mark.parametrize(
    ("ledger", "seed"),
    [
        ("sqlite", 0),
        ("sqlite", 1),
        pytest.param("postgres", 2, marks=pytest.mark.postgres),
        pytest.param("postgres", 3, marks=pytest.mark.postgres),
    ],
    indirect=["ledger"],
)
def test_a_refreshed_report_is_the_one_that_is_built_anew(
    ledger: Ledger, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched_changes: None, seed: int
) -> None:
    # However small the ledger is, nothing but refreshes is to happen here.
    monkeypatch.setattr(publish, "NEW_EVENTS_SHARE_MAX", 1_000)
    services = effects_home(ledger, tmp_path)
    accountant: Accountant = an_accountant(services, tmp_path)
    dice = random.Random(seed)
    history = History(services, clock, dice)
    an_accepted_job(ledger)
    publish_report(accountant)
    for _ in range(COMMANDS):
        history.step()
        if dice.random() < 0.15:
            assert publish_report(accountant).notices == ()
    assert publish_report(accountant).notices == ()
    assert refreshes(accountant) > 0
    assert everything_in(accountant.published) == built_whole(accountant, tmp_path / "anew")
