"""The account over plain sets: the reference of the sources, and the product's own stricter one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest

from receipt_pipeline.accounting.release_report import (
    AccountState,
    Gate,
    JobSets,
    account,
    async_release_report,
    why_the_gate_fails,
)
from receipt_pipeline.core.lifecycle import async_job_state

ACCEPTED = {"job-47", "job-82", "job-93"}


@pytest.mark.requirement("R140")
def test_the_reference_gives_the_answers_of_its_source() -> None:
    accounted = async_release_report(ACCEPTED, {"job-47"}, {"job-82"}, {"job-93"})
    assert accounted == {"state": "accounted", "unresolved": []}
    waiting = async_release_report(ACCEPTED, {"job-47"}, set(), {"job-93"})
    assert waiting == {"state": "investigate", "unresolved": ["job-82"]}


@pytest.mark.requirement("R140")
@pytest.mark.parametrize(
    ("succeeded", "failed", "expired"),
    [
        ({"job-47", "job-unknown"}, {"job-82"}, {"job-93"}),
        ({"job-47"}, {"job-47", "job-82"}, {"job-93"}),
        ({"job-47"}, {"job-82"}, {"job-47", "job-93"}),
        ({"job-47"}, {"job-82", "job-93"}, {"job-93"}),
    ],
)
def test_orphans_and_overlaps_are_invalid(succeeded: set[str], failed: set[str], expired: set[str]) -> None:
    assert async_release_report(ACCEPTED, succeeded, failed, expired) == {"state": "invalid", "unresolved": []}
    ours = account(JobSets(ACCEPTED, succeeded, failed, expired))
    assert (ours.state, ours.gate) == (AccountState.INVALID, Gate.FAIL)


def test_canceled_extends_the_reference_and_is_checked_like_the_others() -> None:
    closed = async_release_report(ACCEPTED, {"job-47"}, {"job-82"}, set(), canceled={"job-93"})
    assert closed["state"] == "accounted"
    for canceled in ({"job-47"}, {"job-82"}, {"job-unknown"}):
        assert async_release_report(ACCEPTED, {"job-47"}, {"job-82"}, set(), canceled=canceled)["state"] == "invalid"


def test_every_list_is_there_also_when_the_sets_are_invalid() -> None:
    ours = account(JobSets({"a", "b", "c", "d"}, succeeded={"a", "b", "x"}, failed={"b"}, in_flight={"c"}))
    assert ours.state is AccountState.INVALID
    assert (ours.orphan, ours.overlapping) == (("x",), ("b",))
    assert (ours.missing, ours.unresolved) == (("c", "d"), ("d",))


def test_an_empty_account_never_passes() -> None:
    empty = account(JobSets(frozenset()))
    assert (empty.state, empty.gate) == (AccountState.EMPTY, Gate.FAIL)
    found = account(JobSets(frozenset()), findings={"divergent": ["x"]})
    assert (found.state, found.gate) == (AccountState.INVESTIGATE, Gate.FAIL)


@pytest.mark.requirement("R138")
def test_a_job_without_a_terminal_record_is_in_flight_or_unresolved_and_nothing_else() -> None:
    ours = account(JobSets({"a", "b", "c"}, succeeded={"a"}, in_flight={"b"}), unowned=["c"])
    assert (ours.missing, ours.unresolved, ours.orphan, ours.overlapping) == (("b", "c"), ("c",), (), ())
    assert ours.state is AccountState.INVESTIGATE


@pytest.mark.requirement("R139")
@pytest.mark.parametrize(
    ("findings", "unowned", "state", "gate"),
    [
        ({}, [], "accounted", "pass"),
        ({"effect_gaps": []}, [], "accounted", "pass"),
        ({"effect_gaps": ["a"]}, [], "investigate", "pass"),
        ({"effect_gaps": ["a"]}, ["effect_gaps:a"], "investigate", "fail"),
        ({}, ["unowned_question:inv_1"], "accounted", "fail"),
    ],
)
def test_the_gate_passes_only_when_every_question_is_owned(
    findings: Mapping[str, list[str]], unowned: list[str], state: str, gate: str
) -> None:
    ours = account(JobSets({"a"}, succeeded={"a"}), findings=findings, unowned=unowned)
    assert (ours.state, ours.gate) == (state, gate)


def recount(sets: JobSets) -> tuple[str, list[str]]:
    ended = [sets.succeeded, sets.failed, sets.expired, sets.canceled, sets.in_flight]
    everything = set(sets.accepted).union(*ended)
    unresolved = [job_id for job_id in sets.accepted if not any(job_id in ids for ids in ended)]
    if any(sum(job_id in ids for ids in ended) > 1 or job_id not in sets.accepted for job_id in everything):
        return "invalid", sorted(unresolved)
    return ("investigate" if unresolved else "accounted" if sets.accepted else "empty"), sorted(unresolved)


def test_every_way_to_place_two_jobs_agrees_with_a_plain_recount() -> None:
    places = list(product([False, True], repeat=6))
    for first, second in product(places, places):
        sets = _placed(first, second)
        ours = account(sets)
        assert (ours.state.value, list(ours.unresolved)) == recount(sets)


def _placed(first: tuple[bool, ...], second: tuple[bool, ...]) -> JobSets:
    return JobSets(
        *({name for name, placed in (("a", a), ("b", b)) if placed} for a, b in zip(first, second, strict=True))
    )


class CountedId(str):
    """A job id that counts how often it is hashed or compared."""

    operations = 0

    def __hash__(self) -> int:
        type(self).operations += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        type(self).operations += 1
        return super().__eq__(other)

    def __lt__(self, other: str) -> bool:
        type(self).operations += 1
        return super().__lt__(other)


def operations_for(jobs: int) -> int:
    ids = [CountedId(f"job-{number}") for number in range(jobs)]
    third = jobs // 3
    sets = JobSets(
        accepted=set(ids), succeeded=set(ids[:third]), failed=set(ids[third : 2 * third]), expired=set(ids[2 * third :])
    )
    CountedId.operations = 0
    assert account(sets).state is AccountState.ACCOUNTED
    return CountedId.operations


@pytest.mark.requirement("R141")
def test_ten_times_the_jobs_take_ten_times_the_operations() -> None:
    small, large = operations_for(3_000), operations_for(30_000)
    assert large <= 11 * small


class CountedJob(Mapping[str, Any]):
    """A job that counts how often it is looked into; `noise` fields must not matter."""

    def __init__(self, noise: int) -> None:
        self._fields: dict[str, Any] = {f"field_{number}": number for number in range(noise)}
        self._fields |= {"state": "accepted", "submitted_at": 1000, "max_queue_age": 47}
        self._fields |= {"input_digest": "sha256:1", "model_digest": "sha256:2"}
        self.reads = 0

    def __getitem__(self, name: str) -> Any:
        self.reads += 1
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the whole job was walked through")

    def __len__(self) -> int:
        return len(self._fields)


@pytest.mark.requirement("R142")
def test_a_state_check_looks_at_the_same_few_fields_whatever_the_size_of_the_job() -> None:
    small, large = CountedJob(0), CountedJob(10_000)
    assert {async_job_state(job, 1040) for job in (small, large)} == {"accepted"}
    assert small.reads == large.reads <= 8


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"gate": "pass", "state": "accounted", "accepted": 1, "unowned": []}, []),
        ({"gate": "fail", "state": "investigate", "accepted": 0, "unowned": []}, ["No job was accepted"]),
        ({"gate": "fail", "state": "empty", "accepted": 0, "unowned": []}, ["No job was accepted"]),
        ({"gate": "fail", "state": "invalid", "accepted": 2, "unowned": []}, ["The records contradict"]),
        (
            {"gate": "fail", "state": "investigate", "accepted": 2, "unowned": ["a", "b"]},
            ["2 open findings have no owner"],
        ),
    ],
)
def test_a_gate_that_fails_always_says_why(document: dict[str, Any], said: list[str]) -> None:
    told = why_the_gate_fails(document)
    assert len(told) == len(said)
    assert all(line.startswith(beginning) for line, beginning in zip(told, said, strict=True))
