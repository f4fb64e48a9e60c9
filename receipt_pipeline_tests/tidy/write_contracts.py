"""Writes the pages of effects, failures and completion; run as a module after a change of a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from receipt_pipeline.core.attempts import FAILURE_RULES, AtBound
from receipt_pipeline.core.audiences import FIELDS, ROLES_OF_AUDIENCE
from receipt_pipeline.core.completion import COMPLETION_CONTRACTS, CompletionContract
from receipt_pipeline.core.effects import (
    EFFECT_PROTOCOLS,
    EFFECT_TRANSITIONS,
    MEANING_OF_CAPABILITY,
    MEANING_WHEN_UNKNOWN,
    WHEN_UNKNOWN,
    EffectState,
)
from receipt_pipeline.core.limits import Limits
from receipt_pipeline_tests.suite_results import PROJECT

WRITTEN = "by `python -m receipt_pipeline_tests.tidy.write_contracts`."
BOUNDS = (
    "item_losses_max",
    "closing_attempts_max",
    "delivery_attempts_max",
    "retry_base_s",
    "retry_cap_s",
    "delivery_retry_s",
    "send_ttl_s",
    "effect_deadline_s",
    "investigation_deadline_s",
)
AT_BOUND = {
    AtBound.CLOSE: "the job closes on what was kept, or as failed when nothing was",
    AtBound.HOLD: "the job is held in phase `reconciling` with an owned investigation",
    AtBound.NONE: "nothing is repeated",
}


def table(header: str, rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a Markdown table; `header` holds the column names divided by `|`."""
    names = [name.strip() for name in header.split("|")]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def effects_text() -> str:
    """Return the page of effects, capabilities and gaps."""
    moves = {
        state: sorted(after.value for before, after in EFFECT_TRANSITIONS if before is state)
        for state in EffectState
    }
    lines = [
        "# Effects",
        "",
        f"Written from `receipt_pipeline/core/effects.py` {WRITTEN}",
        "The code decides by the same table, and the tests take their cases from it. An effect is a",
        "consequence outside the transaction that wants it. No answer of a provider closes a job: a job",
        "closes on a result object that was read back.",
        "",
        "## In which order",
        "",
        *table(
            "effect | key, the same on every attempt | intent | call | reference | reconciliation"
            " | recorded in",
            (
                (p.kind.value, p.key, p.intent, p.call, p.reference, p.reconcile, p.recorded_in)
                for p in EFFECT_PROTOCOLS
            ),
        ),
        "",
        *_unknown_ends(),
        "",
        "## States",
        "",
        *table(
            "state | may become",
            ((f"`{state}`", ", ".join(after) or "nothing else") for state, after in moves.items()),
        ),
        "",
        "## Which query finds a gap",
        "",
        *table(
            "effect | effect without ledger | ledger without effect | required effect missing",
            (
                (p.kind.value, *(f"`{name}`" for name in dataclasses.astuple(p.gaps)))
                for p in EFFECT_PROTOCOLS
            ),
        ),
        "",
        "A required effect that is not committed by its deadline is `effect_gaps.required_effect_overdue` as",
        "well; a notification that was given up after its bound is `effect_gaps.required_effect_given_up`,",
        "and there alone a recorded answer settles the question.",
        "",
    ]
    return "\n".join(lines)


def _unknown_ends() -> list[str]:
    """Return the section about capabilities."""
    return [
        "## When the end of a call is not known",
        "",
        "Every provider declares what it offers to somebody who does not know. The object store, the",
        "ledger's own tasks, the report and the outbox folder can be asked. A notification program says",
        "what it can do by `RECEIPTS_NOTIFY_CAPABILITY`.",
        "",
        *table(
            "capability | means | then",
            (
                (f"`{capability}`", MEANING_OF_CAPABILITY[capability], MEANING_WHEN_UNKNOWN[then])
                for capability, then in WHEN_UNKNOWN.items()
            ),
        ),
        "",
        *table(
            "effect | its provider may offer",
            ((p.kind.value, ", ".join(f"`{name}`" for name in p.capabilities)) for p in EFFECT_PROTOCOLS),
        ),
    ]


def _bounds() -> Iterator[tuple[str, float]]:
    limits = Limits()
    parts = (limits.work, limits.delivery, limits.staffing)
    for name in BOUNDS:
        yield name, next(getattr(part, name) for part in parts if hasattr(part, name))


def failures_text() -> str:
    """Return the page of failure classes, budgets and bounds."""
    lines = [
        "# Failures",
        "",
        f"Written from `receipt_pipeline/core/attempts.py` {WRITTEN}",
        "",
        *table(
            "class | what is known | the product | budget | at its bound",
            (
                (
                    f"`{failure}`",
                    rule.known,
                    rule.answer.value.replace("_", " "),
                    "spends" if rule.spends_budget else "none",
                    AT_BOUND[rule.at_bound],
                )
                for failure, rule in FAILURE_RULES.items()
            ),
        ),
        "",
        "What is spent is the bound of the item that was begun; where none was, the job's `max_attempts`. An",
        "item that spends its bound is isolated as `unresolved` with an owned investigation; its siblings",
        "go on. Pauses double from `retry_base_s` up to `retry_cap_s`, with up to a quarter of jitter that",
        "comes from the job id. A closing attempt computes nothing, spends no budget and has its own bound.",
        "",
        "An investigation names the suspected effect, the last safe checkpoint, the allowed repair, owner",
        "and deadline.",
        "",
        *table("bound | default", ((f"`{name}`", f"{value:g}") for name, value in _bounds())),
        "",
    ]
    return "\n".join(lines)


def completion_text() -> str:
    """Return the page of completion contracts."""
    lines = [
        "# Completion",
        "",
        f"Written from `receipt_pipeline/core/completion.py` {WRITTEN}",
        "Closing loads this table; `receipts status JOB` shows its line of one job.",
    ]
    for contract in COMPLETION_CONTRACTS.values():
        lines += ["", f"## {contract.operation_class}", "", *_contract(contract)]
    lines += ["", "## Who sees what", "", *_audiences()]
    return "\n".join([*lines, ""])


def _contract(contract: CompletionContract) -> list[str]:
    named = ", ".join(f"`{kind}`" for kind in contract.required)
    return [
        f"Contract `{contract.name}`: {contract.promise}.",
        "",
        *table(
            "effect | demanded by | follows | gates the ending",
            [(named, "always", "is the ending's evidence", "yes")]
            + [
                (
                    f"`{effect.kind}`",
                    f"`effects.{effect.demand_from}`: required, best_effort or none",
                    ", ".join(sorted(effect.after)),
                    "no; a required one that is overdue is a gap",
                )
                for effect in contract.following
            ],
        ),
        "",
        "Balanced classes: " + ", ".join(f"`{name}`" for name in contract.balanced) + ".",
        "Their sum is the accepted number of items, in every ending.",
        "",
        *table(
            "terminal class | evidence that closes it",
            ((f"`{name}`", evidence) for name, evidence in contract.evidence.items()),
        ),
    ]


def _audiences() -> list[str]:
    """Return the section about the views of a receipt."""
    lines = [
        "`receipts status JOB --audience A` shows one of three views of the same events. No view holds raw",
        "input, extracted fields, file names, secrets or the text of an exception.",
    ]
    for audience, fields in FIELDS.items():
        roles = ", ".join(sorted(ROLES_OF_AUDIENCE[audience]))
        lines += ["", f"**{audience}**, for the roles {roles}:", ""]
        lines += table("field | what for", ((f"`{name}`", purpose) for name, purpose in fields.items()))
    return lines


PAGES: dict[str, Callable[[], str]] = {
    "effects.md": effects_text,
    "failures.md": failures_text,
    "completion.md": completion_text,
}


if __name__ == "__main__":
    for name, text in PAGES.items():
        (PROJECT / "docs" / name).write_text(text())
