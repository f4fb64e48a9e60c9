"""One function lets a principal pass or not, and fails closed."""

from __future__ import annotations

import pytest

from receipt_pipeline.core.errors import NotAllowed, NotFound, PipelineError
from receipt_pipeline.core.principals import Principal, Role, require

OPERATOR = Principal("acme", "olga", frozenset({"operator"}))


def refusal(principal: Principal, *roles: Role, **record: object) -> PipelineError:
    with pytest.raises(PipelineError) as refused:
        require(principal, *roles, **record)  # type: ignore[arg-type]
    return refused.value


def test_an_unknown_and_a_foreign_record_get_the_same_answer() -> None:
    unknown = refusal(OPERATOR, Role.OPERATOR, record=None)
    foreign = refusal(OPERATOR, Role.OPERATOR, record={"tenant": "globex", "job_id": "job_1"})

    assert isinstance(unknown, NotFound)
    assert foreign.as_document() == unknown.as_document()


def test_a_role_that_does_not_permit_it_is_refused_with_those_that_would() -> None:
    refused = refusal(OPERATOR, Role.REVIEWER, record={"tenant": "acme"})

    assert isinstance(refused, NotAllowed)
    assert refused.reason.code == "NOT_PERMITTED.v1"
    assert refused.facts["needed"] == ["reviewer"]


def test_the_right_tenant_and_role_pass() -> None:
    require(OPERATOR, Role.OPERATOR, Role.REVIEWER, record={"tenant": "acme"})


@pytest.mark.parametrize(
    "principal", [Principal("", "olga", frozenset({"operator"})), Principal("acme", "olga", frozenset())]
)
def test_an_empty_tenant_or_no_role_fails_closed(principal: Principal) -> None:
    assert refusal(principal, Role.OPERATOR).reason.code == "NOT_PERMITTED.v1"
    assert refusal(principal, Role.OPERATOR, record={"tenant": principal.tenant})
