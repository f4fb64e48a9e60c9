"""Manifests of both contracts, read and checked."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import (
    CONTRACT_UNKNOWN,
    FIELD_INVALID,
    FIELD_MISSING,
    FIELD_UNKNOWN,
    ITEM_DUPLICATE,
    ITEMS_EMPTY,
    MANIFEST_TOO_LARGE,
)
from receipt_pipeline.core.request import (
    BATCH_CONTRACT,
    DEFAULT_RELEASE,
    JOB_CONTRACT,
    OPERATION_CLASS,
    ItemRequest,
    JobRequest,
    LimitsRequest,
)
from receipt_pipeline.intake.strict_json import decode_text, parse_strict, part
from receipt_pipeline.intake.tables import RawRow, read_csv, read_json_lines, read_parquet

TEXT_LENGTH_MAX = 200
YEAR_MIN, YEAR_MAX = 2000, 2200
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)")

Choice = TypeVar("Choice", bound=StrEnum)


class Fields:
    """One object of a document on its way into a record.

    Every reader takes its field away, so that `finish` can name what the contract does not know.
    """

    def __init__(self, value: object, pointer: str = "") -> None:
        if not isinstance(value, dict):
            raise InputRefused(FIELD_INVALID, pointer=pointer, expected="object")
        self._left: dict[str, Any] = dict(value)
        self.pointer = pointer

    def has(self, name: str) -> bool:
        """Tell whether the field is given."""
        return name in self._left

    def take(self, name: str) -> Any:
        """Take a field's value as it is. Raises FIELD.MISSING.v1 when there is none."""
        if name not in self._left:
            raise InputRefused(FIELD_MISSING, pointer=self.at(name))
        return self._left.pop(name)

    def ignore(self, name: str) -> None:
        """Let a field pass that is for people only; it is kept nowhere."""
        self._left.pop(name, None)

    def at(self, name: str) -> str:
        """Return the JSON pointer of a field."""
        return self.pointer + part(name)

    def required_text(
        self, name: str, *, length_max: int = TEXT_LENGTH_MAX, form: re.Pattern[str] | None = None
    ) -> str:
        """Take a text: not empty, printable, without white space at its ends."""
        value = self.take(name)
        if not isinstance(value, str):
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected="text")
        if len(value) > length_max:
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), length_max=length_max)
        # isprintable also refuses line ends, zeros and lone surrogates, which a database cannot hold.
        if not value or value != value.strip() or not value.isprintable():
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected="printable text")
        if form is not None and form.fullmatch(value) is None:
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected=form.pattern)
        return value

    def text(
        self, name: str, *, length_max: int = TEXT_LENGTH_MAX, form: re.Pattern[str] | None = None
    ) -> str | None:
        """Take a text, None when it is not given."""
        if name not in self._left:
            return None
        return self.required_text(name, length_max=length_max, form=form)

    def whole_number(self, name: str, *, low: int, high: int) -> int | None:
        """Take a whole number within its range, None when it is not given."""
        if name not in self._left:
            return None
        value = self._left.pop(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected="whole number")
        if not low <= value <= high:
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), low=low, high=high)
        return value

    def moment(self, name: str) -> dt.datetime | None:
        """Take an ISO 8601 time with its zone as an aware UTC time, None when it is not given."""
        value = self.text(name)
        if value is None:
            return None
        try:
            found = dt.datetime.fromisoformat(value) if _MOMENT.fullmatch(value) else None
            moment = found.astimezone(dt.UTC) if found else None
        except (ValueError, OverflowError):
            moment = None
        if moment is None or not YEAR_MIN <= moment.year <= YEAR_MAX:
            expected = "ISO 8601 time with zone"
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected=expected)
        return moment

    def choice(self, name: str, choices: type[Choice], default: Choice) -> Choice:
        """Take one of the named values, the default when it is not given."""
        value = self.text(name)
        if value is None:
            return default
        try:
            return choices(value)
        except ValueError:
            expected = [choice.value for choice in choices]
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected=expected) from None

    def section(self, name: str) -> Fields:
        """Take a nested object, an empty one when it is not given."""
        return Fields(self._left.pop(name, {}), self.at(name))

    def finish(self) -> None:
        """Refuse what no reader took. Raises FIELD.UNKNOWN.v1 with the first such field."""
        if self._left:
            raise InputRefused(FIELD_UNKNOWN, pointer=self.at(min(self._left)))


def renamed(value: object, names: Mapping[str, str], pointer: str) -> object:
    """Return an object with short field names written out; giving both names is refused."""
    if not isinstance(value, dict):
        return value
    given = dict(value)
    for short, name in names.items():
        if short not in given:
            continue
        if name in given:
            raise InputRefused(FIELD_INVALID, pointer=pointer + part(short), same_as=name)
        given[name] = given.pop(short)
    return given


ITEMS_MAX = 20_000
ROWS_MAX = 100_000
URI_LENGTH_MAX = 1_000
SIZE_BYTES_MAX = 2**31 - 1
YEAR_S = 31_536_000
SHA256_FORM = re.compile(r"[0-9a-f]{64}")
MEDIA_TYPE_FORM = re.compile(r"[a-z]+/[a-z0-9.+-]+")
ROW_SHORT_NAMES = {"key": "idempotency_key", "file": "uri", "bytes": "size_bytes"}
SHARED_FIELDS = ("operation_class", "release", "reconciliation_cutoff", "limits", "effects")
MANIFEST_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".csv", ".parquet"})
# These formats have no end that a reader could miss, so a half-written one looks whole.
OPEN_ENDED_SUFFIXES = MANIFEST_SUFFIXES - {".json"}

# Returns the bytes of a list of items that a job refers to, by uri and sha256.
ListLoader = Callable[[str, str, str], bytes]


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One row of a batch, numbered from 1: a request of one item, or why there is none."""

    row_no: int
    idempotency_key: str
    request: JobRequest | None
    refusal: InputRefused | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A parsed batch: every row stands for itself."""

    rows: tuple[BatchRow, ...]


def parse_document(data: bytes, *, suffix: str, load_list: ListLoader) -> JobRequest | Batch:
    """Parse a whole document by the suffix of its format.

    Raises:
        InputRefused: the document is refused as a whole; a bad row refuses only itself.
    """
    if suffix in OPEN_ENDED_SUFFIXES:
        read = {".csv": read_csv, ".parquet": read_parquet}.get(suffix, read_json_lines)
        return _batch(read(data, ROWS_MAX), shared={})
    value = parse_strict(decode_text(data))
    contract = contract_of(value)
    if contract == JOB_CONTRACT:
        return parse_job(value, load_list=load_list)
    return parse_batch(value)


def contract_of(value: object) -> str:
    """Return which contract a document follows. Raises CONTRACT.UNKNOWN.v1 or FIELD.MISSING.v1."""
    if not isinstance(value, dict):
        raise InputRefused(FIELD_INVALID, expected="object")
    if "contract" not in value:
        raise InputRefused(FIELD_MISSING, pointer="/contract")
    if value["contract"] not in (JOB_CONTRACT, BATCH_CONTRACT):
        raise InputRefused(CONTRACT_UNKNOWN, pointer="/contract")
    return str(value["contract"])


def parse_job(value: object, *, load_list: ListLoader) -> JobRequest:
    """Parse one `receipt-job/v1` document."""
    fields = Fields(value)
    fields.take("contract")
    key = fields.required_text("idempotency_key")
    items = _items(fields, load_list)
    request = _request(fields, JOB_CONTRACT, key, items)
    fields.ignore("note")
    fields.finish()
    return request


def parse_batch(value: object) -> Batch:
    """Parse one `receipt-batch/v1` document; what stands beside `rows` holds for every row."""
    fields = Fields(value)
    fields.take("contract")
    rows = fields.take("rows")
    if not isinstance(rows, list):
        raise InputRefused(FIELD_INVALID, pointer="/rows", expected="list")
    shared = {name: fields.take(name) for name in SHARED_FIELDS if fields.has(name)}
    fields.ignore("note")
    fields.finish()
    # What all rows share is judged once, so that its flaw is named where it stands.
    _request(Fields(shared), BATCH_CONTRACT, "shared", ())
    if len(rows) > ROWS_MAX:
        raise InputRefused(MANIFEST_TOO_LARGE, pointer="/rows", rows=len(rows), rows_max=ROWS_MAX)
    return _batch((RawRow(f"/rows/{at}", row) for at, row in enumerate(rows)), shared=shared)


def _batch(raw_rows: Iterable[RawRow], *, shared: dict[str, Any]) -> Batch:
    rows = tuple(_row(row_no, raw, shared) for row_no, raw in enumerate(raw_rows, 1))
    if not rows:
        raise InputRefused(ITEMS_EMPTY, pointer="/rows")
    return Batch(rows)


def _row(row_no: int, raw: RawRow, shared: dict[str, Any]) -> BatchRow:
    """Parse one row; a flaw refuses this row, with its number and line."""
    key = ""
    try:
        if raw.refusal is not None:
            raise raw.refusal
        fields = Fields(renamed(raw.value, ROW_SHORT_NAMES, raw.pointer), raw.pointer)
        if fields.has("contract") and fields.take("contract") != BATCH_CONTRACT:
            raise InputRefused(CONTRACT_UNKNOWN, pointer=fields.at("contract"))
        key = fields.required_text("idempotency_key")
        item = _item(fields, default_id=key)
        own = {name: fields.take(name) for name in SHARED_FIELDS if fields.has(name)}
        fields.ignore("note")
        fields.finish()
        options = Fields(shared | own, raw.pointer)
        return BatchRow(row_no, key, _request(options, BATCH_CONTRACT, key, (item,)))
    except InputRefused as refusal:
        line = {} if raw.line is None else {"line": raw.line}
        facts = {"row": row_no} | line | dict(refusal.facts)
        return BatchRow(row_no, key, None, InputRefused(refusal.reason, pointer=refusal.pointer, **facts))


def _request(fields: Fields, contract: str, key: str, items: tuple[ItemRequest, ...]) -> JobRequest:
    """Read the options that both contracts share."""
    operation_class = fields.text("operation_class") or OPERATION_CLASS
    if operation_class != OPERATION_CLASS:
        pointer = fields.at("operation_class")
        raise InputRefused(FIELD_INVALID, pointer=pointer, expected=OPERATION_CLASS)
    effects = fields.section("effects")
    request = JobRequest(
        contract=contract,
        idempotency_key=key,
        items=items,
        operation_class=operation_class,
        release=fields.text("release") or DEFAULT_RELEASE,
        reconciliation_cutoff=fields.moment("reconciliation_cutoff"),
        limits=_limits(fields.section("limits")),
        notification=effects.choice("notification", EffectDemand, EffectDemand.BEST_EFFORT),
        review_tasks=effects.choice("review_tasks", EffectDemand, EffectDemand.REQUIRED),
    )
    effects.finish()
    return request


def _limits(fields: Fields) -> LimitsRequest:
    limits = LimitsRequest(
        max_queue_age_s=fields.whole_number("max_queue_age_s", low=1, high=YEAR_S),
        processing_timeout_s=fields.whole_number("processing_timeout_s", low=1, high=YEAR_S),
        result_retention_s=fields.whole_number("result_retention_s", low=1, high=10 * YEAR_S),
        max_attempts=fields.whole_number("max_attempts", low=1, high=20),
    )
    fields.finish()
    return limits


def _items(fields: Fields, load_list: ListLoader) -> tuple[ItemRequest, ...]:
    """Read `items`, or the list that `items_ref` names by uri and digest."""
    pointer = fields.at("items")
    if fields.has("items_ref"):
        if fields.has("items"):
            raise InputRefused(FIELD_INVALID, pointer=fields.at("items_ref"), same_as="items")
        reference = fields.section("items_ref")
        uri = reference.required_text("uri", length_max=URI_LENGTH_MAX)
        sha256 = reference.required_text("sha256", form=SHA256_FORM)
        reference.finish()
        pointer = reference.pointer
        listed = parse_strict(decode_text(load_list(uri, sha256, pointer)), pointer=pointer)
    else:
        listed = fields.take("items")
    if not isinstance(listed, list):
        raise InputRefused(FIELD_INVALID, pointer=pointer, expected="list")
    if not listed:
        raise InputRefused(ITEMS_EMPTY, pointer=pointer)
    if len(listed) > ITEMS_MAX:
        raise InputRefused(MANIFEST_TOO_LARGE, pointer=pointer, items=len(listed), items_max=ITEMS_MAX)
    return _distinct([_whole_item(value, pointer + part(at)) for at, value in enumerate(listed)], pointer)


def _distinct(items: list[ItemRequest], pointer: str) -> tuple[ItemRequest, ...]:
    first: dict[str, int] = {}
    for at, item in enumerate(items):
        if first.setdefault(item.item_id, at) != at:
            raise InputRefused(
                ITEM_DUPLICATE, pointer=f"{pointer}/{at}/item_id", first=f"{pointer}/{first[item.item_id]}"
            )
    return tuple(items)


def _whole_item(value: object, pointer: str) -> ItemRequest:
    fields = Fields(value, pointer)
    item = _item(fields)
    fields.finish()
    return item


def _item(fields: Fields, *, default_id: str | None = None) -> ItemRequest:
    if default_id is not None and not fields.has("item_id"):
        item_id = default_id
    else:
        item_id = fields.required_text("item_id")
    return ItemRequest(
        item_id=item_id,
        uri=fields.required_text("uri", length_max=URI_LENGTH_MAX),
        sha256=fields.required_text("sha256", form=SHA256_FORM),
        size_bytes=fields.whole_number("size_bytes", low=0, high=SIZE_BYTES_MAX),
        media_type=fields.text("media_type", form=MEDIA_TYPE_FORM),
        id_explicit=True,
    )
