"""The environment, read once into a frozen record; everything has an embedded default."""

from __future__ import annotations

import dataclasses
import getpass
import math
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from receipt_pipeline.core.alerts import AlertThresholds, read_thresholds
from receipt_pipeline.core.canonical import is_digest
from receipt_pipeline.core.effects import Capability
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.limits import SERVES_ALL, Limits, Rollout, RolloutStage
from receipt_pipeline.core.principals import Role
from receipt_pipeline.core.reasons import SETTING_INVALID

ALERTS_FILE = "alerts.toml"
COHORT_ALLOWED = "names of callers, with RECEIPTS_ROLLOUT=cohort and not without it"
ZONES_ALLOWED = "a zone by its name, such as Europe/Berlin"
LIMIT_PREFIX = "RECEIPTS_LIMIT_"
LIMIT_ALIASES = {"settle_s": "debounce_s", "missing_scans_s": "arrival_timeout_s"}
DAGSTER_SCHEMA = "dagster"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
PACKAGE_ROOT = Path(__file__).resolve().parent
CHECKOUT = PACKAGE_ROOT.parent
INSTALLED_SHARE = Path(sys.prefix) / "share" / "receipt_pipeline"


@dataclass(frozen=True, slots=True)
class Settings:
    """Where this installation keeps its state, whom it acts for, and its limits.

    Attributes:
        home: all run-time state; two homes side by side never meet.
        shipped: read-only folder with `folds/`, `models/`, `policies/`, `releases/`, `samples/`.
        ledger_url: SQLAlchemy URL of the ledger.
        dagster_postgres_url: Dagster's own storage on PostgreSQL, None for the embedded one.
        image_digest: given by a container, None where set-up computes it.
        drill_plan: JSON of a failure plan; refused unless drills are enabled.
        notify_command: the program that takes notifications; empty for files in the outbox.
        notify_capability: what that program offers when the end of a call is not known.
        evaluation_set: folder of labelled scans on which releases are evaluated.
        rollout: whom this installation serves while it takes over from an older system.
    """

    home: Path
    shipped: Path
    dagster_yaml: Path
    ledger_url: str
    dagster_postgres_url: str | None
    tenant: str
    caller: str
    roles: frozenset[str]
    image_digest: str | None
    limits: Limits
    drills_enabled: bool
    drill_plan: str
    notify_command: tuple[str, ...] = ()
    notify_capability: Capability = Capability.NEITHER
    evaluation_set: Path | None = None
    rollout: Rollout = SERVES_ALL

    @property
    def inbox(self) -> Path:
        """Return the drop folder's root."""
        return self.home / "inbox"

    def alert_thresholds(self) -> AlertThresholds:
        """Read when operators are warned: the home's own `alerts.toml`, or the one that ships.

        Raises:
            InputRefused: SETTING.INVALID.v1, naming what is wrong in the file.
        """
        for path in (self.home / ALERTS_FILE, self.shipped / ALERTS_FILE):
            if path.is_file():
                return read_thresholds(path.read_text(encoding="utf-8"), name=str(path))
        return AlertThresholds()

    @property
    def outbox(self) -> Path:
        """Return the root of acknowledgements, status documents and file notifications."""
        return self.home / "outbox"

    @property
    def objects(self) -> Path:
        """Return the root of the local object store."""
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
        """Return the folder where the reader's models are placed by digest."""
        return self.home / "ocr_models"


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read every `RECEIPTS_*` variable once.

    Raises:
        InputRefused: SETTING.INVALID.v1, naming the variable.
    """
    env = os.environ if environ is None else environ
    root = CHECKOUT if (CHECKOUT / "pyproject.toml").is_file() else INSTALLED_SHARE
    home = _home(env.get("RECEIPTS_HOME") or _default_home(root))
    postgres = env.get("RECEIPTS_POSTGRES_URL", "")
    digest = env.get("RECEIPTS_IMAGE_DIGEST", "")
    if digest and not is_digest(digest):
        raise InputRefused(SETTING_INVALID, variable="RECEIPTS_IMAGE_DIGEST")
    return Settings(
        home=home,
        shipped=root / "data",
        dagster_yaml=root / ("dagster.postgres.yaml" if postgres else "dagster.yaml"),
        ledger_url=_with_driver(postgres, "psycopg") if postgres else f"sqlite:///{home / 'ledger.db'}",
        dagster_postgres_url=_in_schema(_with_driver(postgres, "psycopg2")) if postgres else None,
        tenant=_name(env, "RECEIPTS_TENANT", "local"),
        caller=_name(env, "RECEIPTS_CALLER", _user_name()),
        roles=_roles(env),
        image_digest=digest or None,
        limits=_limits(env),
        drills_enabled=env.get("RECEIPTS_DRILLS", "") == "enabled",
        drill_plan=env.get("RECEIPTS_DRILL_PLAN", ""),
        notify_command=_words(env, "RECEIPTS_NOTIFY_COMMAND"),
        notify_capability=_capability(env),
        evaluation_set=Path(env["RECEIPTS_EVALUATION_SET"]) if env.get("RECEIPTS_EVALUATION_SET") else None,
        rollout=_rollout(env),
    )


def _home(written: str | Path) -> Path:
    """Return the home's full path, unless the URLs of its databases would lead elsewhere."""
    home = Path(written).expanduser().resolve()
    if any(mark in str(home) for mark in "?%"):
        raise InputRefused(SETTING_INVALID, variable="RECEIPTS_HOME", allowed="a path without ? and %")
    return home


def _default_home(root: Path) -> Path:
    return root / "data" if root == CHECKOUT else Path.cwd() / "data"


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A container without a passwd entry still has a caller.
        return "unknown"


def _name(env: Mapping[str, str], variable: str, default: str) -> str:
    value = env.get(variable) or default
    if not NAME.fullmatch(value):  # Tenants and callers become folders and keys.
        raise InputRefused(SETTING_INVALID, variable=variable)
    return value


def _roles(env: Mapping[str, str]) -> frozenset[str]:
    """Return the roles as given, all of them by default; a name that is no role is a mistake."""
    given = env.get("RECEIPTS_ROLES", ",".join(Role))
    roles = frozenset(filter(None, (name.strip() for name in given.split(","))))
    if not roles <= frozenset(Role):
        raise InputRefused(SETTING_INVALID, variable="RECEIPTS_ROLES", allowed=", ".join(Role))
    return roles


def _words(env: Mapping[str, str], variable: str) -> tuple[str, ...]:
    """Return a command as its words, quoted as in a shell; no shell ever reads it."""
    try:
        return tuple(shlex.split(env.get(variable, "")))
    except ValueError as error:
        raise InputRefused(SETTING_INVALID, variable=variable) from error


def _capability(env: Mapping[str, str]) -> Capability:
    """Return what the notification program declares; one that declares nothing can do nothing."""
    variable = "RECEIPTS_NOTIFY_CAPABILITY"
    given = env.get(variable) or Capability.NEITHER
    if given not in tuple(Capability):
        raise InputRefused(SETTING_INVALID, variable=variable, allowed=", ".join(Capability))
    return Capability(given)


def _rollout(env: Mapping[str, str]) -> Rollout:
    """Return the stage; a cohort without the stage that serves it, or the other way round, is a mistake."""
    given = env.get("RECEIPTS_ROLLOUT") or RolloutStage.TRUTH
    if given not in tuple(RolloutStage):
        raise InputRefused(SETTING_INVALID, variable="RECEIPTS_ROLLOUT", allowed=", ".join(RolloutStage))
    cohort = frozenset(
        filter(None, (name.strip() for name in env.get("RECEIPTS_ROLLOUT_COHORT", "").split(",")))
    )
    if bool(cohort) != (given == RolloutStage.COHORT) or not all(map(NAME.fullmatch, cohort)):
        raise InputRefused(
            SETTING_INVALID, variable="RECEIPTS_ROLLOUT_COHORT", stage=given, allowed=COHORT_ALLOWED
        )
    return Rollout(RolloutStage(given), cohort)


def _with_driver(url: str, driver: str) -> str:
    """Return the one PostgreSQL URL with the driver that its reader wants."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.split("+")[0] not in ("postgresql", "postgres"):
        raise InputRefused(SETTING_INVALID, variable="RECEIPTS_POSTGRES_URL")
    try:
        make_url(url)
    except (ArgumentError, ValueError) as error:  # The text holds a password, so it is not shown.
        raise InputRefused(SETTING_INVALID, variable="RECEIPTS_POSTGRES_URL") from error
    return f"postgresql+{driver}://{rest}"


def _in_schema(url: str) -> str:
    """Return the URL with Dagster's own schema: both have a table `jobs` and one of migrations."""
    return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{DAGSTER_SCHEMA}"


def _time_zone(env: Mapping[str, str]) -> str:
    """Return the zone of the report's days by its name, as in `Europe/Berlin`."""
    name = env.get("RECEIPTS_TIME_ZONE") or "UTC"
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputRefused(SETTING_INVALID, variable="RECEIPTS_TIME_ZONE", allowed=ZONES_ALLOWED) from error


def _limits(env: Mapping[str, str]) -> Limits:
    """Return the default limits with every `RECEIPTS_LIMIT_<NAME>` put in its place."""
    defaults = Limits(time_zone=_time_zone(env))
    parts = (defaults.work, defaults.intake, defaults.delivery, defaults.retention, defaults.staffing)
    numbers = {field.name: getattr(part, field.name) for part in parts for field in dataclasses.fields(part)}
    given: dict[str, float | int] = {}
    for variable, text in env.items():
        if not variable.startswith(LIMIT_PREFIX):
            continue
        name = variable.removeprefix(LIMIT_PREFIX).lower()
        name = LIMIT_ALIASES.get(name, name)
        kind = type(numbers.get(name))
        if kind not in (int, float):
            raise InputRefused(SETTING_INVALID, variable=variable)
        try:
            given[name] = kind(text)
        except ValueError as error:
            raise InputRefused(SETTING_INVALID, variable=variable) from error
        if not 0 <= given[name] < math.inf:
            raise InputRefused(SETTING_INVALID, variable=variable)
    replaced = defaults.replace(**given)
    principals = env.get("RECEIPTS_PRINCIPALS")
    if principals is None:
        return replaced
    staffing = dataclasses.replace(
        replaced.staffing, principals=frozenset(filter(None, principals.split(",")))
    )
    return dataclasses.replace(replaced, staffing=staffing)
