"""The environment, read once: every variable, its default, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.limits import DeliveryLimits, IntakeLimits, Limits, Retention, Staffing, WorkLimits
from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline.settings import CHECKOUT, Settings, read_settings

ROLES = frozenset({"submitter", "operator", "reviewer", "analyst"})
PARTS = (WorkLimits, IntakeLimits, DeliveryLimits, Retention, Staffing)
NUMBERS = sorted({(f.name, f.type) for part in PARTS for f in dataclasses.fields(part) if f.type in ("int", "float")})


def settings(home: Path, **given: str) -> Settings:
    named = {f"RECEIPTS_{name}": value for name, value in given.items()}
    return read_settings({"RECEIPTS_HOME": str(home), **named})


def refusal(home: Path, **given: str) -> InputRefused:
    with pytest.raises(InputRefused, match=r"SETTING\.INVALID\.v1") as refused:
        settings(home, **given)
    return refused.value


def test_everything_has_an_embedded_default() -> None:
    found = read_settings({})
    assert found.home == CHECKOUT / "data"
    assert found.ledger_url == f"sqlite:///{found.home / 'ledger.db'}"
    assert found.dagster_postgres_url is None
    assert found.dagster_yaml.name == "dagster.yaml"
    assert (found.tenant, found.roles) == ("local", ROLES)
    assert found.caller
    assert (found.image_digest, found.drills_enabled, found.drill_plan) == (None, False, "")
    assert found.limits == Limits()


def test_what_is_shipped_is_there() -> None:
    found = read_settings({})
    assert {"models", "policies", "releases"} <= {path.name for path in found.shipped.iterdir()}
    assert (found.dagster_yaml.parent / "workspace.yaml").is_file()
    assert found.dagster_yaml.is_file()


@pytest.mark.parametrize("name", ["n#1", "ü & ö @ c:1"])
def test_a_home_of_an_odd_name_keeps_its_ledger_in_itself(tmp_path: Path, name: str) -> None:
    ledger = open_ledger(settings(tmp_path / name).ledger_url)
    assert ledger.table_names() == set()
    ledger.close()
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.db")] == [f"{name}/ledger.db"]


@pytest.mark.parametrize("name", ["a%20b", "what?x=1"])
def test_a_home_whose_name_would_lead_a_database_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path / name).facts["variable"] == "RECEIPTS_HOME"


def test_the_home_moves_all_run_time_state(tmp_path: Path) -> None:
    found = settings(tmp_path / "home")
    places = (found.inbox, found.outbox, found.objects, found.report, found.dagster_home, found.ocr_models)
    assert {path.parent for path in places} == {tmp_path / "home"}
    assert len(set(places)) == len(places)
    assert found.ledger_url == f"sqlite:///{tmp_path}/home/ledger.db"
    assert found.shipped == read_settings({}).shipped


def test_a_relative_home_is_the_same_from_wherever_it_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_settings({"RECEIPTS_HOME": "here"}).home == tmp_path / "here"


def test_reading_settings_makes_nothing(tmp_path: Path) -> None:
    settings(tmp_path / "home")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+psycopg2"])
def test_one_postgres_url_serves_the_ledger_and_dagster_each_with_its_driver(tmp_path: Path, scheme: str) -> None:
    found = settings(tmp_path, POSTGRES_URL=f"{scheme}://kim:secret@db:5432/receipts?sslmode=require")
    assert found.ledger_url == "postgresql+psycopg://kim:secret@db:5432/receipts?sslmode=require"
    # Both have a table `jobs`, so Dagster lives in a schema of its own.
    assert found.dagster_postgres_url == (
        "postgresql+psycopg2://kim:secret@db:5432/receipts?sslmode=require&options=-csearch_path%3Ddagster"
    )
    assert found.dagster_yaml.name == "dagster.postgres.yaml"


def test_whom_a_process_acts_for_comes_from_its_environment(tmp_path: Path) -> None:
    found = settings(tmp_path, TENANT="acme-1", CALLER="kim.w", ROLES="analyst, reviewer")
    assert (found.tenant, found.caller) == ("acme-1", "kim.w")
    assert found.roles == {"analyst", "reviewer"}


def test_no_roles_at_all_can_be_given(tmp_path: Path) -> None:
    assert settings(tmp_path, ROLES="").roles == frozenset()


def test_image_digest_and_drills_are_taken_as_given(tmp_path: Path) -> None:
    found = settings(tmp_path, IMAGE_DIGEST=digest_of("image"), DRILLS="enabled", DRILL_PLAN="[]")
    assert (found.image_digest, found.drills_enabled, found.drill_plan) == (digest_of("image"), True, "[]")


@pytest.mark.parametrize("word", ["", "1", "true", "ENABLED", "disabled"])
def test_drills_are_enabled_by_one_word_only(tmp_path: Path, word: str) -> None:
    assert not settings(tmp_path, DRILLS=word).drills_enabled


@pytest.mark.parametrize(("name", "kind"), NUMBERS)
def test_every_number_among_the_limits_has_its_variable(tmp_path: Path, name: str, kind: str) -> None:
    limits = settings(tmp_path, **{f"LIMIT_{name.upper()}": "7"}).limits
    assert limits == Limits().replace(**{name: 7})
    parts = (limits.work, limits.intake, limits.delivery, limits.retention, limits.staffing)
    given = [getattr(part, name) for part in parts if hasattr(part, name)]
    assert {(value, type(value).__name__) for value in given} == {(7, kind)}


@pytest.mark.parametrize(("former", "now"), [("SETTLE_S", "debounce_s"), ("MISSING_SCANS_S", "arrival_timeout_s")])
def test_the_former_names_of_two_limits_are_read_as_aliases(tmp_path: Path, former: str, now: str) -> None:
    assert settings(tmp_path, **{f"LIMIT_{former}": "4.5"}).limits == Limits().replace(**{now: 4.5})


def test_changing_one_limit_leaves_the_others(tmp_path: Path) -> None:
    limits = settings(tmp_path, LIMIT_LEASE_TTL_S="4.5", LIMIT_WAVE_SLOTS="3").limits
    assert limits == Limits().replace(lease_ttl_s=4.5, wave_slots=3)


def test_active_principals_are_a_list(tmp_path: Path) -> None:
    found = settings(tmp_path, PRINCIPALS="kim,lee,", LIMIT_WAVE_SLOTS="1")
    assert found.limits.staffing.principals == {"kim", "lee"}
    assert found.limits.work.wave_slots == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("IMAGE_DIGEST", "latest"),
        ("IMAGE_DIGEST", "sha256:00"),
        ("TENANT", "a/b"),
        ("TENANT", ".."),
        ("TENANT", ".hidden"),
        ("TENANT", "a b"),
        ("CALLER", "kim\n"),
        ("CALLER", "../kim"),
        ("TENANT", "t" * 101),
        ("ROLES", "submitter,admin"),
        ("POSTGRES_URL", "mysql://kim:secret@db/receipts"),
        ("POSTGRES_URL", "receipts"),
        ("POSTGRES_URL", "postgresql://kim:secret@db:port/receipts"),
        ("LIMIT_NO_SUCH", "1"),
        ("LIMIT_ROTA", "kim"),
        ("LIMIT_PRINCIPALS", "3"),
        ("LIMIT_LEASE_TTL_S", "soon"),
        ("LIMIT_LEASE_TTL_S", "-1"),
        ("LIMIT_LEASE_TTL_S", "nan"),
        ("LIMIT_LEASE_TTL_S", "inf"),
        ("LIMIT_WAVE_SLOTS", "1.5"),
        ("LIMIT_WAVE_SLOTS", ""),
    ],
)
def test_what_cannot_be_used_is_refused_by_name_and_never_repeated(tmp_path: Path, variable: str, value: str) -> None:
    refused = refusal(tmp_path / "home", **{variable: value})
    assert refused.facts["variable"] == f"RECEIPTS_{variable}"
    assert "secret" not in str(refused.as_document())


def test_a_given_environment_is_read_instead_of_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECEIPTS_TENANT", "elsewhere")
    monkeypatch.setenv("RECEIPTS_POSTGRES_URL", "")  # As a sandbox empties it.
    assert read_settings({}).tenant == "local"
    assert read_settings().tenant == "elsewhere"
