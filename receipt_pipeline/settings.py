"""Environment variables as one frozen model; every variable has a default."""

from __future__ import annotations

import dataclasses
import getpass
import os
import re
import shlex
import sys
from collections.abc import Mapping
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
)
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from receipt_pipeline.core.alerts import AlertThresholds, read_thresholds
from receipt_pipeline.core.canonical import is_digest
from receipt_pipeline.core.effects import Capability
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.limits import Limits, Rollout, RolloutStage
from receipt_pipeline.core.principals import Role
from receipt_pipeline.core.reasons import SETTING_INVALID

ALERTS_FILE = "alerts.toml"
PREFIX = "RECEIPTS_"
DAGSTER_SCHEMA = "dagster"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NAME_ALLOWED = "1 to 100 letters, digits, dots, hyphens or underscores, starting with a letter or digit"
URL_ALLOWED = "a PostgreSQL URL, such as postgresql://USER:PASSWORD@HOST:5432/DATABASE"
COHORT_ALLOWED = "names of callers with RECEIPTS_ROLLOUT=cohort, and nothing without it"
PACKAGE_ROOT = Path(__file__).resolve().parent
CHECKOUT = PACKAGE_ROOT.parent
SHIPPED_ARTIFACTS = Path(str(resources.files("receipt_pipeline") / "artifacts"))
INSTALLED_SHARE = Path(sys.prefix) / "share" / "receipt_pipeline"
SHARED_FILES = CHECKOUT if (CHECKOUT / "pyproject.toml").is_file() else INSTALLED_SHARE
FORMER_LIMIT_NAMES = {"debounce_s": "settle_s", "arrival_timeout_s": "missing_scans_s"}
# Set to an empty text these mean something; any other variable is then as good as absent.
MAY_BE_EMPTY = ("RECEIPTS_ROLES", "RECEIPTS_PRINCIPALS", "RECEIPTS_LIMIT_")
_ALLOWED_BY_ERROR = {
    "extra_forbidden": "the name of a limit; the configuration page lists them",
    "int": "a whole number, 0 or more",
    "float": "a number, 0 or more",
    "finite_number": "a number, 0 or more",
    "greater_than_equal": "a number, 0 or more",
}


def _limit_numbers() -> type[BaseModel]:
    """Return a model of every number in `Limits`, for the variables `RECEIPTS_LIMIT_<NAME>`."""
    limits = Limits()
    kinds = {"int": int, "float": float}
    fields: dict[str, Any] = {}
    for part in (limits.work, limits.intake, limits.delivery, limits.retention, limits.staffing):
        for field in dataclasses.fields(part):
            if field.type in kinds:
                names = (field.name, FORMER_LIMIT_NAMES.get(field.name, field.name))
                rule = Field(
                    getattr(part, field.name), ge=0, allow_inf_nan=False, validation_alias=AliasChoices(*names)
                )
                fields[field.name] = (kinds[str(field.type)], rule)
    config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    return create_model("LimitNumbers", __config__=config, **fields)


if TYPE_CHECKING:
    LimitNumbers = BaseModel
else:
    LimitNumbers = _limit_numbers()


def _checked_name(value: str) -> str:
    if not NAME.fullmatch(value):  # Tenants and callers become folders and keys.
        raise ValueError(NAME_ALLOWED)
    return value


def _names(value: object) -> object:
    """Return a comma-separated text as a set of names."""
    return {name.strip() for name in value.split(",") if name.strip()} if isinstance(value, str) else value


def _shell_words(value: object) -> object:
    """Return a command as its words, quoted as in a shell; no shell ever reads it."""
    try:
        return tuple(shlex.split(value)) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError("a command with balanced quotes") from error


def _data_directory(written: Path) -> Path:
    """Return the full path, unless the URLs of its databases would point elsewhere."""
    home = written.expanduser().resolve()
    if any(mark in str(home) for mark in "?%"):
        raise ValueError("a path without ? and %")
    return home


def _postgres_url(url: str) -> str:
    try:
        if make_url(url).drivername.split("+")[0] not in ("postgresql", "postgres"):
            raise ValueError(URL_ALLOWED)
    except (ArgumentError, ValueError) as error:  # The text holds a password, so it is not shown.
        raise ValueError(URL_ALLOWED) from error
    return url


def _zone_name(name: str) -> str:
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("the name of a time zone, such as Europe/Berlin") from error


def _image_digest(digest: str) -> str:
    if not is_digest(digest):
        raise ValueError("sha256: and 64 hex digits")
    return digest


def _default_home() -> Path:
    return SHARED_FILES / "data" if SHARED_FILES == CHECKOUT else Path.cwd() / "data"


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A container without a passwd entry still has a caller.
        return "unknown"


Name = Annotated[str, AfterValidator(_checked_name)]


class Settings(BaseSettings):
    """Where this instance keeps its state, whom it acts for, and its limits.

    Attributes:
        home: the data directory, with all run-time state; two of them side by side share nothing.
        postgres_url: the one server of ledger and Dagster; None for the embedded databases.
        image_digest: given by a container, None where set-up computes it.
        drills: `enabled` lets `drill_plan`, the JSON of a failure plan, take effect.
        notify_command: the program that takes notifications; empty for files in the outbox.
        notify_capability: what that program offers when the end of a call is not known.
        evaluation_set: folder of labeled scans on which releases are evaluated.
        stage: whom this instance serves while it takes over from a legacy system.
        principals: everyone who can own an investigation.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
    )

    home: Annotated[Path, AfterValidator(_data_directory)] = Field(default_factory=_default_home)
    tenant: Name = "local"
    caller: Name = Field(default_factory=_user_name, validate_default=True)
    roles: Annotated[frozenset[Role], NoDecode, BeforeValidator(_names)] = frozenset(Role)
    postgres_url: Annotated[str, AfterValidator(_postgres_url)] | None = None
    image_digest: Annotated[str, AfterValidator(_image_digest)] | None = None
    limit: LimitNumbers = Field(default_factory=LimitNumbers)
    principals: Annotated[frozenset[str] | None, NoDecode, BeforeValidator(_names)] = None
    time_zone: Annotated[str, AfterValidator(_zone_name)] = "UTC"
    drills: str = ""
    drill_plan: str = ""
    notify_command: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_shell_words)] = ()
    notify_capability: Capability = Capability.NEITHER
    evaluation_set: Path | None = None
    stage: RolloutStage = Field(RolloutStage.TRUTH, validation_alias="RECEIPTS_ROLLOUT")
    rollout_cohort: Annotated[frozenset[Name], NoDecode, BeforeValidator(_names)] = frozenset()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing but what `read_settings` passes; the environment may not be that of this process."""
        return (init_settings,)

    @property
    def drills_enabled(self) -> bool:
        """Return whether a failure plan may take effect."""
        return self.drills == "enabled"

    @property
    def rollout(self) -> Rollout:
        """Return the rollout stage and its cohort."""
        return Rollout(self.stage, self.rollout_cohort)

    @cached_property
    def limits(self) -> Limits:
        """Return every limit, by subject."""
        limits = Limits(time_zone=self.time_zone).replace(**self.limit.model_dump(exclude_unset=True))
        if self.principals is None:
            return limits
        return dataclasses.replace(limits, staffing=dataclasses.replace(limits.staffing, principals=self.principals))

    @property
    def shipped(self) -> Path:
        """Return the read-only folder with `folds/`, `models/`, `policies/`, `releases/`, `alerts.toml`."""
        return SHIPPED_ARTIFACTS

    @property
    def samples(self) -> Path:
        """Return the read-only folder of the sample scans and their manifest."""
        return SHARED_FILES / "data" / "samples"

    @property
    def dagster_yaml(self) -> Path:
        """Return the configuration of Dagster's instance for the databases in use."""
        return SHARED_FILES / ("dagster.postgres.yaml" if self.postgres_url else "dagster.yaml")

    @property
    def ledger_url(self) -> str:
        """Return the SQLAlchemy URL of the ledger."""
        url = self.postgres_url
        return _with_driver(url, "psycopg") if url else f"sqlite:///{self.home / 'ledger.db'}"

    @property
    def dagster_postgres_url(self) -> str | None:
        """Return the URL of Dagster's storage, in its own schema: both databases have a table `jobs`."""
        if not self.postgres_url:
            return None
        url = _with_driver(self.postgres_url, "psycopg2")
        return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{DAGSTER_SCHEMA}"

    def alert_thresholds(self) -> AlertThresholds:
        """Read when operators are warned: the data directory's own `alerts.toml`, or the shipped one.

        Raises:
            InputRefused: SETTING.INVALID.v1, naming what is wrong in the file.
        """
        for path in (self.home / ALERTS_FILE, self.shipped / ALERTS_FILE):
            if path.is_file():
                return read_thresholds(path.read_text(encoding="utf-8"), name=str(path))
        return AlertThresholds()

    @property
    def inbox(self) -> Path:
        """Return the folder into which manifests and scans are dropped."""
        return self.home / "inbox"

    @property
    def outbox(self) -> Path:
        """Return the folder of acknowledgments, status documents and file notifications."""
        return self.home / "outbox"

    @property
    def objects(self) -> Path:
        """Return the folder of the local object store."""
        return self.home / "objects"

    @property
    def report(self) -> Path:
        """Return the folder of the published report."""
        return self.home / "report"

    @property
    def evaluations(self) -> Path:
        """Return the folder of the releases' evaluations and their pages."""
        return self.home / "evaluations"

    @property
    def metrics(self) -> Path:
        """Return the file of signals for a metrics collector."""
        return self.home / "metrics" / "receipts.prom"

    @property
    def dagster_home(self) -> Path:
        """Return Dagster's own folder."""
        return self.home / "dagster"

    @property
    def ocr_models(self) -> Path:
        """Return the folder of the recognition models, by digest."""
        return self.home / "ocr_models"


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read every `RECEIPTS_*` variable once, from the process's environment unless one is given.

    Raises:
        InputRefused: SETTING.INVALID.v1, naming the variable and what is allowed.
    """
    given = {
        name: value
        for name, value in (os.environ if environ is None else environ).items()
        if name.startswith(PREFIX) and (value or name.startswith(MAY_BE_EMPTY))
    }
    try:
        settings = Settings.model_validate(_FromMapping(given)())
    except ValidationError as error:
        raise _refusal(error, given) from error
    if bool(settings.rollout_cohort) != (settings.stage is RolloutStage.COHORT):
        raise InputRefused(SETTING_INVALID, variable="RECEIPTS_ROLLOUT_COHORT", allowed=COHORT_ALLOWED)
    return settings


class _FromMapping(EnvSettingsSource):
    """Reads one given mapping instead of the process's environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(Settings)
        self.env_vars = {name.lower(): value for name, value in environ.items()}


def _refusal(error: ValidationError, given: Mapping[str, str]) -> InputRefused:
    """Return the refusal of the first invalid variable; it never repeats a value: URLs hold passwords."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = [str(step) for step in first["loc"] if isinstance(step, str)]
    name = PREFIX + "_".join(place[:2] if place[0] == "limit" else place[:1]).upper().removeprefix(PREFIX)
    former = FORMER_LIMIT_NAMES.get(place[-1])
    if name not in given and former is not None:
        name = f"{PREFIX}LIMIT_{former.upper()}"
    kind = first["type"]
    if kind == "value_error":
        allowed = str(first["ctx"]["error"])
    elif kind == "enum":
        allowed = str(first["ctx"]["expected"]).replace("'", "")
    else:
        allowed = _ALLOWED_BY_ERROR.get(kind, _ALLOWED_BY_ERROR.get(kind.split("_")[0], first["msg"]))
    return InputRefused(SETTING_INVALID, variable=name, allowed=allowed)


def _with_driver(url: str, driver: str) -> str:
    """Return the PostgreSQL URL with the driver that its reader wants."""
    return f"postgresql+{driver}://{url.partition('://')[2]}"
