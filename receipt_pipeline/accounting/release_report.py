"""Balances plain sets of job ids: which jobs are accounted for, and whether the gate passes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Any


def async_release_report(
    accepted: Set[str], succeeded: Set[str], failed: Set[str], expired: Set[str], *, canceled: Set[str] = frozenset()
) -> dict[str, Any]:
    """Return `state` and `unresolved` as source 000 defines them; `canceled` extends it.

    The reference for the product's own `account`: it names no id when the sets are invalid,
    and calls an empty accepted set `accounted`, which `account` never does.
    """
    ended = (succeeded, failed, expired, canceled)
    terminal = frozenset[str]().union(*ended)
    if terminal - accepted or any(first & second for first, second in combinations(ended, 2)):
        return {"state": "invalid", "unresolved": []}
    unresolved = sorted(accepted - terminal)
    return {"state": "investigate" if unresolved else "accounted", "unresolved": unresolved}


class AccountState(StrEnum):
    """What the account says of all accepted jobs together."""

    ACCOUNTED = "accounted"
    INVESTIGATE = "investigate"
    INVALID = "invalid"
    EMPTY = "empty"


class Gate(StrEnum):
    """Whether the account may be relied upon."""

    PASS = "pass"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class JobSets:
    """Job ids by outcome; a sound ledger puts each accepted id into one set at most."""

    accepted: Set[str]
    succeeded: Set[str] = frozenset()
    failed: Set[str] = frozenset()
    expired: Set[str] = frozenset()
    canceled: Set[str] = frozenset()
    in_flight: Set[str] = frozenset()

    @property
    def terminal(self) -> Set[str]:
        """Return every id that has a terminal record."""
        return frozenset[str]().union(self.succeeded, self.failed, self.expired, self.canceled)


@dataclass(frozen=True, slots=True)
class Account:
    """The account: every list is complete whatever the state, and sorted.

    Attributes:
        missing: accepted, without a terminal record (in flight or unresolved).
        unresolved: missing and not in flight: neither failed nor succeeded.
        orphan: terminal or in flight without having been accepted.
        overlapping: in more than one set.
        unowned: open findings without an active owner inside their deadline.
    """

    state: AccountState
    gate: Gate
    missing: tuple[str, ...]
    unresolved: tuple[str, ...]
    orphan: tuple[str, ...]
    overlapping: tuple[str, ...]
    unowned: tuple[str, ...]


def account(
    sets: JobSets,
    *,
    findings: Mapping[str, Collection[str]] | None = None,
    unowned: Collection[str] = (),
    others: int = 0,
) -> Account:
    """Balance the sets in time and memory linear in their size.

    Args:
        others: how many more jobs are accepted, and in flight or in one terminal set each; nothing is said
            of them.
        findings: further open findings by kind, such as `success_without_object`, with their ids.
        unowned: names of open findings that have no active owner in time.
    """
    overlapping, everywhere = _overlaps(sets)
    orphan = everywhere - sets.accepted
    missing = sets.accepted - sets.terminal
    unresolved = missing - sets.in_flight
    if orphan or overlapping:
        state = AccountState.INVALID
    elif unresolved or any((findings or {}).values()):
        state = AccountState.INVESTIGATE
    elif not sets.accepted and not others:
        state = AccountState.EMPTY
    else:
        state = AccountState.ACCOUNTED
    passes = (
        bool(sets.accepted or others) and not unowned and state in (AccountState.ACCOUNTED, AccountState.INVESTIGATE)
    )
    return Account(
        state=state,
        gate=Gate.PASS if passes else Gate.FAIL,
        missing=tuple(sorted(missing)),
        unresolved=tuple(sorted(unresolved)),
        orphan=tuple(sorted(orphan)),
        overlapping=tuple(sorted(overlapping)),
        unowned=tuple(sorted(unowned)),
    )


def _overlaps(sets: JobSets) -> tuple[set[str], set[str]]:
    """Return the ids in more than one set, and all ids, in one pass over each set."""
    seen: set[str] = set()
    twice: set[str] = set()
    for ids in (sets.succeeded, sets.failed, sets.expired, sets.canceled, sets.in_flight):
        twice |= seen & ids
        seen |= ids
    return twice, seen


def why_the_gate_fails(document: Mapping[str, Any]) -> list[str]:
    """Return in sentences why the gate of a report document fails; empty where it passes."""
    if document["gate"] == Gate.PASS:
        return []
    reasons = []
    if document["state"] == AccountState.INVALID:
        reasons.append("The records contradict each other: see orphan_terminal and overlapping.")
    if not document["accepted"]:
        reasons.append("No job was accepted, so there is nothing to account for.")
    if document["unowned"]:
        open_findings = len(document["unowned"])
        noun = "finding has" if open_findings == 1 else "findings have"
        reasons.append(
            f"{open_findings} open {noun} no owner inside the deadline: see unowned. Open investigations with"
            " `receipts reconcile`, then assign them with `receipts investigations assign`."
        )
    return reasons
