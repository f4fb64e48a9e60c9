"""Tenant, caller and roles, checked by one function for every entry point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from receipt_pipeline.core.errors import NotAllowed, NotFound
from receipt_pipeline.core.reasons import NOT_FOUND, NOT_PERMITTED


class Role(StrEnum):
    """What a principal may do."""

    SUBMITTER = "submitter"
    OPERATOR = "operator"
    REVIEWER = "reviewer"
    ANALYST = "analyst"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, never chosen in a request; `roles` are names of `Role`."""

    tenant: str
    caller: str
    roles: frozenset[str]


class _NoRecord:
    """The request concerns no record."""


NO_RECORD = _NoRecord()


class Owned(Protocol):
    """A record that belongs to a tenant."""

    @property
    def tenant(self) -> str:
        """Return the tenant."""


def require(
    principal: Principal, *any_of: Role, record: Owned | Mapping[str, Any] | _NoRecord | None = NO_RECORD
) -> None:
    """Raise unless the principal may do this; empty tenant or roles are refused.

    Args:
        any_of: roles, one of which is enough.
        record: the requested row with its `tenant`; None when it does not exist.
    Raises:
        NotFound: the record is unknown, or belongs to another tenant; the answer is the same.
        NotAllowed: NOT_PERMITTED.v1, naming the accepted roles.
    """
    if not isinstance(record, _NoRecord) and (record is None or not _own(principal, record)):
        raise NotFound(NOT_FOUND)
    if not principal.tenant or not principal.caller or principal.roles.isdisjoint(any_of):
        raise NotAllowed(NOT_PERMITTED, needed=sorted(any_of))


def _own(principal: Principal, record: Owned | Mapping[str, Any]) -> bool:
    tenant = record["tenant"] if isinstance(record, Mapping) else record.tenant
    return bool(principal.tenant) and tenant == principal.tenant
