"""Deliberate defects, each put into the product's own code for the length of a test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from receipt_pipeline.effects import consume, deliver
from receipt_pipeline.ledger.jobs import checkpoint, claim, expire, failures, finalize, publication
from receipt_pipeline.ledger.rows import JobRow, read_job
from receipt_pipeline.worker import publish

EPOCH_GUARD = "            jobs.c.lease_epoch == token.lease_epoch,\n"


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


_LATE: list[Callable[[Any], None]] = []


def postpone_message(job: JobRow, record: finalize.TerminalRecord) -> None:
    """Postpone the writing of a message."""
    _LATE.append(lambda tx: finalize._append_message(tx, job, record))


def write_late(attempt: Any) -> None:
    """Write the postponed messages in a separate transaction."""
    with attempt.worker.ledger.transaction() as tx:
        for write in _LATE:
            write(tx)
    _LATE.clear()


MUTATIONS = (
    Mutation(
        "a checkpoint of a worker that lost its lease is accepted",
        ((checkpoint.write_checkpoint, ((", jobs.c.lease_epoch == token.lease_epoch)", ")"),)),),
        breaks="only_the_holder_writes",
        seed=4,
    ),
    Mutation(
        "a failure of a worker that lost its lease ends its successor's attempt",
        ((failures._release_lease, ((EPOCH_GUARD, ""),)),),
        breaks="only_the_worker_ends_its_own_attempt",
        seed=16,
    ),
    Mutation(
        "a lease is taken before it expires",
        ((failures.lose_lease, (("            jobs.c.lease_expires_at <= tx.now(),\n", ""),)),),
        breaks="a_valid_lease_is_not_taken",
        seed=8,
    ),
    Mutation(
        "a stored result is uploaded again",
        ((publish._stored_earlier, (("return row.idempotency_key", "return None"),)),),
        breaks="a_stored_result_is_not_uploaded_again",
        seed=8,
    ),
    Mutation(
        "the message is written after the terminal record, in a separate transaction",
        (
            (finalize.write_terminal, (("    _append_message(tx, job, record)", "    late(job, record)"),)),
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
                    (" or job.state is not JobState.ACCEPTED", " or job.terminal_at is not None"),
                    ("(jobs.c.state == JobState.ACCEPTED) & ", ""),
                ),
            ),
            (expire.overdue_job_ids, (("jobs.c.state == JobState.ACCEPTED", "jobs.c.terminal_at.is_(None)"),)),
        ),
        breaks="expiry_and_claim_exclude_each_other",
    ),
    Mutation(
        "the consumer acts twice on one decision",
        ((consume._known, ((" and tasks_state in _DUE_STATES", " and tasks_state is not None"),)),),
        breaks="one_action_per_decision",
        seed=1,
    ),
    Mutation(
        "a lost item is not counted, and its job is retried forever",
        ((failures._count_item_failure, (("losses = item.losses + 1", "losses = item.losses"),)),),
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
        ((failures.lose_lease, (("lease_epoch=jobs.c.lease_epoch + 1", "lease_epoch=jobs.c.lease_epoch"),)),),
        breaks="attempts_stay_within_their_bounds",
        seed=3,
    ),
    Mutation(
        "a commit of a worker that lost its lease is accepted",
        (
            (
                finalize.commit_result,
                (
                    ("job = require_lease(tx, token)", "assert job is not None"),
                    (" & (jobs.c.lease_epoch == token.lease_epoch)", ""),
                ),
            ),
        ),
        breaks="only_the_holder_writes",
        seed=18,
    ),
    Mutation(
        "an upload of a worker that lost its lease is intended",
        ((publication.record_intent, (("require_lease(tx, token)", "read_job(tx, token.job_id, lock=True)"),)),),
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
        ((finalize.finish_job_if_done, (("tx.row(missing.limit(1)) is not None", "False"),)),),
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
        ((consume._consume, (("fault = result_fault(context, job)", "fault = None"),)),),
        breaks="tasks_follow_a_verified_result",
    ),
)
