"""Manifests of both contracts as strict models; a refusal names its place as a JSON pointer."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import (
    CONTRACT_UNKNOWN,
    FIELD_INVALID,
    FIELD_MISSING,
    FIELD_UNKNOWN,
    ITEM_DUPLICATE,
    ITEMS_EMPTY,
    MANIFEST_ENCODING,
    MANIFEST_TOO_LARGE,
    REASONS,
    Reason,
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
from receipt_pipeline.intake.tables import RawRow, read_csv, read_json_lines

TEXT_LENGTH_MAX = 200
URI_LENGTH_MAX = 1_000
YEAR_MIN, YEAR_MAX = 2000, 2200
ITEMS_MAX = 20_000
ROWS_MAX = 100_000
SIZE_BYTES_MAX = 2**31 - 1
YEAR_S = 31_536_000
SHA256_FORM = re.compile(r"[0-9a-f]{64}")
MEDIA_TYPE_FORM = re.compile(r"[a-z]+/[a-z0-9.+-]+")
ROW_SHORT_NAMES = {"key": "idempotency_key", "file": "uri", "bytes": "size_bytes"}
# These formats have no end that a reader could miss, so an incomplete one looks complete.
OPEN_ENDED_SUFFIXES = frozenset({".jsonl", ".ndjson", ".csv"})
REFUSED_SUFFIXES = frozenset({".parquet"})
MANIFEST_SUFFIXES = OPEN_ENDED_SUFFIXES | REFUSED_SUFFIXES | {".json"}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)")

# Returns the bytes of a list of items that a job refers to, by uri and sha256.
ListLoader = Callable[[str, str, str], bytes]
Model = TypeVar("Model", bound=BaseModel)
Choice = TypeVar("Choice", bound=StrEnum)


def flaw(reason: Reason, **facts: Any) -> PydanticCustomError:
    """Return the error by which a validator refuses its value with a reason and facts."""
    return PydanticCustomError(reason.code, "{code}", {"code": reason.code, "facts": facts})


def text_rule(length_max: int = TEXT_LENGTH_MAX, form: tuple[re.Pattern[str], str] | None = None) -> Any:
    """Return the rule of a text: not empty, printable, no white space at its ends, of the named form."""

    def check(value: object) -> str:
        if not isinstance(value, str):
            raise flaw(FIELD_INVALID, expected="text")
        if len(value) > length_max:
            raise flaw(FIELD_INVALID, length_max=length_max)
        # isprintable also refuses line ends, zeros and lone surrogates, which a database cannot hold.
        if not value or value != value.strip() or not value.isprintable():
            raise flaw(FIELD_INVALID, expected="printable text")
        if form is not None and form[0].fullmatch(value) is None:
            raise flaw(FIELD_INVALID, expected=form[1])
        return value

    return BeforeValidator(check)


def whole_rule(low: int, high: int) -> Any:
    """Return the rule of a whole number within its range."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise flaw(FIELD_INVALID, expected="whole number")
        if not low <= value <= high:
            raise flaw(FIELD_INVALID, low=low, high=high)
        return value

    return BeforeValidator(check)


def one_of(choices: type[Choice]) -> Any:
    """Return the rule of a text that names a member of an enumeration."""

    def check(value: str) -> Choice:
        try:
            return choices(value)
        except ValueError:
            raise flaw(FIELD_INVALID, expected=[choice.value for choice in choices]) from None

    return BeforeValidator(check)


def _moment(value: str) -> dt.datetime:
    """Return an ISO 8601 time with its zone as an aware UTC time."""
    try:
        found = dt.datetime.fromisoformat(value) if _MOMENT.fullmatch(value) else None
        moment = found.astimezone(dt.UTC) if found else None
    except (ValueError, OverflowError):
        moment = None
    if moment is None or not YEAR_MIN <= moment.year <= YEAR_MAX:
        raise flaw(FIELD_INVALID, expected="ISO 8601 time with zone")
    return moment


def _only_class(value: str) -> str:
    if value != OPERATION_CLASS:
        raise flaw(FIELD_INVALID, expected=OPERATION_CLASS)
    return value


def _row_contract(value: object) -> object:
    if value != BATCH_CONTRACT:
        raise flaw(CONTRACT_UNKNOWN)
    return value


# Rules run from right to left: the last one sees the value as it was parsed, and refuses `null`.
PlainText = text_rule()
Text = Annotated[str, PlainText]
OptionalText = Annotated[str | None, PlainText]
Moment = Annotated[dt.datetime, BeforeValidator(_moment), PlainText]
OptionalMoment = Annotated[dt.datetime | None, BeforeValidator(_moment), PlainText]
Uri = Annotated[str, text_rule(URI_LENGTH_MAX)]
Sha256 = Annotated[str, text_rule(form=(SHA256_FORM, "64 hex digits in lower case"))]
MediaType = Annotated[str | None, text_rule(form=(MEDIA_TYPE_FORM, "a media type, such as image/jpeg"))]
Demand = Annotated[EffectDemand, one_of(EffectDemand), PlainText]
Seconds = Annotated[int | None, whole_rule(1, YEAR_S)]
Size = Annotated[int | None, whole_rule(0, SIZE_BYTES_MAX)]


class StrictModel(BaseModel):
    """An object of a document: every field is known, typed and given once."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class _Limits(StrictModel):
    max_queue_age_s: Seconds = None
    processing_timeout_s: Seconds = None
    result_retention_s: Annotated[int | None, whole_rule(1, 10 * YEAR_S)] = None
    max_attempts: Annotated[int | None, whole_rule(1, 20)] = None


class _Effects(StrictModel):
    notification: Demand = EffectDemand.BEST_EFFORT
    review_tasks: Demand = EffectDemand.REQUIRED


class _Item(StrictModel):
    item_id: Text
    uri: Uri
    sha256: Sha256
    size_bytes: Size = None
    media_type: MediaType = None

    def request(self) -> ItemRequest:
        return ItemRequest(
            item_id=self.item_id,
            uri=self.uri,
            sha256=self.sha256,
            size_bytes=self.size_bytes,
            media_type=self.media_type,
            id_explicit=True,
        )


class _ItemsReference(StrictModel):
    uri: Uri
    sha256: Sha256


class _Options(StrictModel):
    """What both contracts share."""

    operation_class: Annotated[str, AfterValidator(_only_class), PlainText] = OPERATION_CLASS
    release: Text = DEFAULT_RELEASE
    reconciliation_cutoff: OptionalMoment = None
    limits: _Limits = _Limits()
    effects: _Effects = _Effects()
    note: Any = None

    def request(self, contract: str, key: str, items: tuple[ItemRequest, ...]) -> JobRequest:
        return JobRequest(
            contract=contract,
            idempotency_key=key,
            items=items,
            operation_class=self.operation_class,
            release=self.release,
            reconciliation_cutoff=self.reconciliation_cutoff,
            limits=LimitsRequest(**self.limits.model_dump()),
            notification=self.effects.notification,
            review_tasks=self.effects.review_tasks,
        )


def _bounded_rows(value: object) -> object:
    if not isinstance(value, list):
        raise flaw(FIELD_INVALID, expected="list")
    if not value:
        raise flaw(ITEMS_EMPTY)
    if len(value) > ROWS_MAX:
        raise flaw(MANIFEST_TOO_LARGE, rows=len(value), rows_max=ROWS_MAX)
    return value


def _bounded_items(value: object) -> object:
    if not isinstance(value, list):
        raise flaw(FIELD_INVALID, expected="list")
    if not value:
        raise flaw(ITEMS_EMPTY)
    if len(value) > ITEMS_MAX:
        raise flaw(MANIFEST_TOO_LARGE, items=len(value), items_max=ITEMS_MAX)
    return value


def _distinct(items: list[_Item]) -> list[_Item]:
    first: dict[str, int] = {}
    for at, item in enumerate(items):
        if first.setdefault(item.item_id, at) != at:
            raise flaw(ITEM_DUPLICATE, at=at, first=first[item.item_id])
    return items


# The fields of these come before the options, because the first flaw in this order is the one reported.
class _JobFields(StrictModel):
    contract: Any
    idempotency_key: Text
    items: Annotated[list[_Item], BeforeValidator(_bounded_items), AfterValidator(_distinct)]


class _Job(_Options, _JobFields):
    pass


class _BatchFields(StrictModel):
    contract: Any
    rows: Annotated[list[Any], BeforeValidator(_bounded_rows)]


class _Batch(_Options, _BatchFields):
    pass


class _RowFields(StrictModel):
    contract: Annotated[Any, BeforeValidator(_row_contract)] = BATCH_CONTRACT
    idempotency_key: Text
    item_id: OptionalText = None
    uri: Uri
    sha256: Sha256
    size_bytes: Size = None
    media_type: MediaType = None


class _Row(_Options, _RowFields):
    pass


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One row of a batch, numbered from 1: a request of one item, or why there is none."""

    row_no: int
    idempotency_key: str
    request: JobRequest | None
    refusal: InputRefused | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A parsed batch: every row is accepted or refused on its own."""

    rows: tuple[BatchRow, ...]


def parse_document(data: bytes, *, suffix: str, load_list: ListLoader) -> JobRequest | Batch:
    """Parse a document by the suffix of its format.

    Raises:
        InputRefused: the document is refused as a whole; a bad row refuses only itself.
    """
    if suffix in REFUSED_SUFFIXES:
        raise InputRefused(MANIFEST_ENCODING, format=suffix, allowed=["JSON", "JSON lines", "CSV"])
    if suffix in OPEN_ENDED_SUFFIXES:
        read = read_csv if suffix == ".csv" else read_json_lines
        return _batch(read(data, ROWS_MAX), shared=_Options())
    value = parse_strict(decode_text(data))
    if not isinstance(value, dict):
        raise InputRefused(FIELD_INVALID, expected="object")
    if "contract" not in value:
        raise InputRefused(FIELD_MISSING, pointer="/contract")
    if value["contract"] == JOB_CONTRACT:
        return parse_job(value, load_list=load_list)
    if value["contract"] == BATCH_CONTRACT:
        return _parse_batch(value)
    raise InputRefused(CONTRACT_UNKNOWN, pointer="/contract")


def parse_job(value: dict[str, Any], *, load_list: ListLoader) -> JobRequest:
    """Parse one `receipt-job/v1` document, and the list of items where it only refers to one."""
    renamed = {}
    if "items_ref" in value:
        value, renamed = _with_items(value, load_list), {"items": "items_ref"}
    job = validated(_Job, value, renamed=renamed)
    return job.request(JOB_CONTRACT, job.idempotency_key, tuple(item.request() for item in job.items))


def _with_items(value: dict[str, Any], load_list: ListLoader) -> dict[str, Any]:
    """Return the document with the items that `items_ref` names by uri and digest."""
    pointer = "/items_ref"
    if "items" in value:
        raise InputRefused(FIELD_INVALID, pointer=pointer, same_as="items")
    given = dict(value)
    reference = validated(_ItemsReference, given.pop("items_ref"), pointer)
    listed = decode_text(load_list(reference.uri, reference.sha256, pointer))
    return given | {"items": parse_strict(listed, pointer=pointer)}


def _parse_batch(value: dict[str, Any]) -> Batch:
    """Parse one `receipt-batch/v1` document; the options next to `rows` hold for every row."""
    shared = validated(_Batch, value)
    return _batch((RawRow(f"/rows/{at}", row) for at, row in enumerate(shared.rows)), shared=shared)


def _batch(raw_rows: Iterable[RawRow], *, shared: _Options) -> Batch:
    rows = tuple(_row(row_no, raw, shared) for row_no, raw in enumerate(raw_rows, 1))
    if not rows:
        raise InputRefused(ITEMS_EMPTY, pointer="/rows")
    return Batch(rows)


def _row(row_no: int, raw: RawRow, shared: _Options) -> BatchRow:
    """Parse one row; a flaw refuses this row, with its number and line."""
    key = ""
    try:
        if raw.refusal is not None:
            raise raw.refusal
        value = _long_names(raw.value, raw.pointer)
        key = _readable_key(value)
        row = validated(_Row, value, raw.pointer)
        # What a row says itself replaces what the batch says, field by field.
        own = {name: getattr(row, name) for name in row.model_fields_set & _Options.model_fields.keys()}
        options = shared.model_copy(update=own)
        item = _Item.model_construct(
            item_id=row.item_id or key,
            uri=row.uri,
            sha256=row.sha256,
            size_bytes=row.size_bytes,
            media_type=row.media_type,
        )
        return BatchRow(row_no, key, options.request(BATCH_CONTRACT, key, (item.request(),)))
    except InputRefused as refusal:
        line = {} if raw.line is None else {"line": raw.line}
        facts = {"row": row_no} | line | dict(refusal.facts)
        return BatchRow(row_no, key, None, InputRefused(refusal.reason, pointer=refusal.pointer, **facts))


def _long_names(value: object, pointer: str) -> object:
    """Return a row with its short field names written out; giving both names is refused."""
    if not isinstance(value, dict):
        return value
    for short, name in ROW_SHORT_NAMES.items():
        if short in value and name in value:
            raise InputRefused(FIELD_INVALID, pointer=pointer + part(short), same_as=name)
    return {ROW_SHORT_NAMES.get(name, name): entry for name, entry in value.items()}


def _readable_key(value: object) -> str:
    """Return the key of a row that may be refused, "" when the key itself is invalid."""
    if not isinstance(value, dict) or value.get("contract", BATCH_CONTRACT) != BATCH_CONTRACT:
        return ""
    try:
        return _KEY.validate_python(value.get("idempotency_key"))
    except ValidationError:
        return ""


def checked_key(key: str) -> str:
    """Return an idempotency key that was given apart from a manifest. Raises FIELD.INVALID.v1."""
    try:
        return _KEY.validate_python(key)
    except ValidationError as error:
        raise _refusal(error, key, pointer="/idempotency_key", renamed={}) from None


_KEY: TypeAdapter[str] = TypeAdapter(Text)


def validated(
    model: type[Model], value: object, pointer: str = "", *, renamed: Mapping[str, str] | None = None
) -> Model:
    """Return a parsed value as its model.

    Args:
        pointer: of the value in its document.
        renamed: fields of the model that have another name in the document.
    Raises:
        InputRefused: FIELD.* or the code that a rule named, at the first flaw in the order of the fields.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _refusal(error, value, pointer=pointer, renamed=renamed or {}) from None


def _refusal(error: ValidationError, value: object, *, pointer: str, renamed: Mapping[str, str]) -> InputRefused:
    """Return the refusal of the first flaw."""
    errors = error.errors(include_url=False, include_input=False)
    first, steps = errors[0], list(errors[0]["loc"])
    if first["type"] in _UNKNOWN:
        level = steps[:-1] if first["type"] == "extra_forbidden" else steps
        steps = [*level, _first_unknown(errors, value, level)]
    if steps:
        steps[0] = renamed.get(str(steps[0]), steps[0])
    place = pointer + "".join(map(part, steps))
    context = first.get("ctx", {})
    if "code" not in context:
        facts = {"expected": _EXPECTED[first["type"]]} if first["type"] in _EXPECTED else {}
        return InputRefused(_REASONS.get(first["type"], FIELD_INVALID), pointer=place, **facts)
    facts = dict(context["facts"])
    if context["code"] == ITEM_DUPLICATE.code:
        place, facts = f"{place}/{facts['at']}/item_id", {"first": f"{place}/{facts['first']}"}
    return InputRefused(REASONS[context["code"]], pointer=place, **facts)


def _first_unknown(errors: Sequence[ErrorDetails], value: object, level: list[int | str]) -> str:
    """Return the alphabetically first unknown field of one object."""
    names = [str(error["loc"][-1]) for error in errors if error["loc"] and list(error["loc"][:-1]) == level]
    found: Any = value
    for step in level:
        found = found[step]
    # The library refuses an object with a name that is not valid Unicode, and does not say which.
    unreadable = [name for name in found if name.encode("utf-8", "replace").decode() != name]
    return str(min(unreadable or names))


_UNKNOWN = ("extra_forbidden", "string_unicode")
_REASONS = dict.fromkeys(_UNKNOWN, FIELD_UNKNOWN) | {"missing": FIELD_MISSING}
_EXPECTED = {"model_type": "object", "list_type": "list", "dict_type": "object"}
