"""Deliberate defects, each put into the product's own code for the length of a test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from sqlalchemy import literal_column, or_

from receipt_pipeline.effects import consume, deliver
from receipt_pipeline.ledger.jobs import checkpoint, claim, expire, failures, finalize, publication
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline.worker import publish

EPOCH_GUARD = "        .where(jobs.c.lease_epoch == token.lease_epoch)\n"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One defect.

    Attributes:
        name: what the product then does wrong.
        edits: per function the texts of it that are replaced, and by what.
        breaks: the invariant that a simulated seed finds broken first, and `seed` is that seed.
        names: what the edited texts need besides the names of their modules.
    """

    name: str
    edits: tuple[tuple[Callable[..., Any], tuple[tuple[str, str], ...]], ...]
    breaks: str
    seed: int = 0
    names: tuple[tuple[str, Any], ...] = ()


@contextmanager
def installed(mutation: Mutation) -> Iterator[None]:
    """Install a defect in the product; every importer of an edited function sees it."""
    with ExitStack() as stack:
        for function, replacements in mutation.edits:
            stack.enter_context(_edited(function, replacements, dict(mutation.names)))
        yield


@contextmanager
def _edited(
    function: Callable[..., Any], replacements: tuple[tuple[str, str], ...], names: dict[str, Any]
) -> Iterator[None]:
    """Run a function by an edited copy of its own source; a text that is not there fails the test."""
    assert isinstance(function, FunctionType)
    source = inspect.getsource(function)
    for old, new in replacements:
        assert old in source, f"{function.__name__} no longer says {old!r}"
        source = source.replace(old, new)
    module: dict[str, Any] = {**function.__globals__}
    exec(compile("from __future__ import annotations\n" + source, f"<{function.__name__}>", "exec"), module)
    kept, missing = function.__code__, object()
    before = {name: function.__globals__.get(name, missing) for name in names}
    function.__globals__.update(names)
    function.__code__ = module[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = kept
        for name, value in before.items():
            if value is missing:
                del function.__globals__[name]
            else:
                function.__globals__[name] = value


def careless(statement: Any, condition: str) -> Any:
    """Return a SELECT or UPDATE with one of its conditions always true."""
    texts = [str(clause) for clause in statement._where_criteria]
    assert condition in texts, f"no {condition!r} among {texts}"
    weak = statement._generate()
    weak._where_criteria = tuple(
        or_(literal_column("1") == literal_column("1"), clause) if text == condition else clause
        for text, clause in zip(texts, statement._where_criteria, strict=True)
    )
    return weak


_LATE: list[Callable[[Any], None]] = []


def postpone_message(job: dict[str, Any], **given: Any) -> None:
    """Postpone the writing of a message."""
    _LATE.append(lambda tx: finalize._append_message(tx, job, **given))


def write_late(attempt: Any) -> None:
    """Write the postponed messages in a separate transaction."""
    with attempt.worker.ledger.transaction() as tx:
        for write in _LATE:
            write(tx)
    _LATE.clear()


MUTATIONS = (
    Mutation(
        "a checkpoint of a worker that lost its lease is accepted",
        ((checkpoint.write_checkpoint, (("_OWN_JOB", "careless"),)),),
        breaks="only_the_holder_writes",
        seed=4,
        names=(("careless", careless(checkpoint._OWN_JOB, "jobs.lease_epoch = :of_epoch")),),
    ),
    Mutation(
        "a failure of a worker that lost its lease ends its successor's attempt",
        ((failures._release, (("_RELEASE", "careless"),)),),
        breaks="only_the_worker_ends_its_own_attempt",
        seed=16,
        names=(("careless", careless(failures._RELEASE, "jobs.lease_epoch = :seen_epoch")),),
    ),
    Mutation(
        "a lease is taken before it expires",
        ((failures.lose_lease, (("_TAKE_AWAY", "careless"),)),),
        breaks="a_valid_lease_is_not_taken",
        seed=8,
        names=(("careless", careless(failures._TAKE_AWAY, "jobs.lease_expires_at <= :now")),),
    ),
    Mutation(
        "a stored result is uploaded again",
        ((publish._stored_earlier, (('return str(row["idempotency_key"])', "return None"),)),),
        breaks="a_stored_result_is_not_uploaded_again",
        seed=8,
    ),
    Mutation(
        "the message is written after the terminal record, in a separate transaction",
        (
            (finalize.write_terminal, (("    _append_message(tx, job, ", "    late(job, "),)),
            (publish.publish, (('    point("commit.after")\n', "    write_late(attempt)\n"),)),
        ),
        breaks="terminal_record_has_intents",
        names=(("late", postpone_message), ("write_late", write_late)),
    ),
    Mutation(
        "a job expires although a worker has it",
        (
            (
                expire.expire_job,
                (
                    (' or job["state"] != JobState.ACCEPTED', ' or job["terminal_at"] is not None'),
                    ("(jobs.c.state == JobState.ACCEPTED) & ", ""),
                ),
            ),
            (
                expire.overdue_job_ids,
                (("_OVERDUE", "careless"),),
            ),
        ),
        breaks="expiry_and_claim_exclude_each_other",
        names=(
            (
                "careless",
                careless(expire._OVERDUE, "jobs.state = :state_1").where(jobs.c.terminal_at.is_(None)),
            ),
        ),
    ),
    Mutation(
        "the consumer acts twice on one decision",
        ((consume._known, ((" and tasks_state in _DUE_STATES", " and tasks_state is not None"),)),),
        breaks="one_action_per_decision",
        seed=1,
    ),
    Mutation(
        "a lost item is not counted, and its job is retried forever",
        ((failures._count_item_failure, (('losses = item["losses"] + 1', 'losses = item["losses"]'),)),),
        breaks="a_finished_item_is_not_read_again",
        seed=1,
    ),
    Mutation(
        "a sent message counts as delivered, whether or not it arrived",
        (
            (
                deliver._look_up_and_send,
                (
                    ("if reference is not None:", "if not held:"),
                    ("DeliveryAttempt(DELIVERED, reference)", 'DeliveryAttempt(DELIVERED, reference or "")'),
                ),
            ),
        ),
        breaks="deliveries_match_arrivals",
        seed=3,
    ),
    Mutation(
        "a worker that is counted as lost keeps its epoch",
        ((failures.lose_lease, (("_TAKE_AWAY", "keeping"),)),),
        breaks="attempts_stay_within_their_bounds",
        seed=3,
        names=(("keeping", failures._TAKE_AWAY.values(lease_epoch=jobs.c.lease_epoch)),),
    ),
    Mutation(
        "a commit of a worker that lost its lease is accepted",
        (
            (
                finalize.commit_result,
                (
                    (' or job["lease_epoch"] != token.lease_epoch or job["state"] != JobState.RUNNING', ""),
                    (" & (jobs.c.lease_epoch == token.lease_epoch)", ""),
                ),
            ),
        ),
        breaks="only_the_holder_writes",
        seed=18,
    ),
    Mutation(
        "an upload of a worker that lost its lease is intended",
        (
            (
                publication.record_intent,
                (("require_lease(tx, token)", "read_job(tx, token.job_id, lock=True)"),),
            ),
        ),
        breaks="only_the_holder_writes",
        seed=2,
        names=(("read_job", read_job),),
    ),
    Mutation(
        "a heartbeat of a worker that lost its lease renews its successor's",
        ((claim.renew_lease, ((EPOCH_GUARD, ""),)),),
        breaks="only_the_holder_renews",
        seed=8,
    ),
    Mutation(
        "a job gets `settled_at` while a required effect is missing",
        ((finalize.finish_job_if_done, (('tx.row(_MISSING, {"of_job": job_id}) is not None', "False"),)),),
        breaks="no_job_was_settled_too_early",
        seed=1,
    ),
    Mutation(
        "an answered upload counts as stored without being read back",
        ((publish.publish, (("    _read_back(attempt, result)\n", ""),)),),
        breaks="results_are_damaged_only_by_accidents",
        seed=2,
    ),
    Mutation(
        "tasks are made without reading the result object",
        ((consume._take, (("fault = result_fault(context, job)", "fault = None"),)),),
        breaks="tasks_follow_a_verified_result",
    ),
)
