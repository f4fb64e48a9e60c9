"""The public cases about reading, from manifest to account: 25 to 30."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from receipt_pipeline.chain.ocr.engine import RapidOcrEngine
from receipt_pipeline.chain.ocr.models import place_models
from receipt_pipeline.chain.pipeline import Chain
from receipt_pipeline.chain.release import load_chain, shipped_releases
from receipt_pipeline.core.items import ItemContext, ItemOutcome
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.settings import SHIPPED_ARTIFACTS
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain
from receipt_pipeline_tests.field.cases import CaseHouse, balance, case, manifest_of, submit_case

pytestmark = pytest.mark.field

IMAGE = "sha256:" + "e" * 64


@dataclass(slots=True)
class RememberingChain:
    """The real chain, asked once for each scan: its answer follows from the bytes alone."""

    chain: Chain
    answers: dict[bytes, ItemOutcome] = field(default_factory=dict)

    def classify(
        self, data: bytes, *, duplicate_bytes: bool, on_page: Callable[[], None], context: ItemContext
    ) -> ItemOutcome:
        assert not duplicate_bytes
        if data not in self.answers:
            self.answers[data] = self.chain.classify(data, duplicate_bytes=False, on_page=on_page)
        return self.answers[data]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> RememberingChain:
    release = shipped_releases(SHIPPED_ARTIFACTS, image_digest=IMAGE)[-1].release
    engine = RapidOcrEngine(place_models(tmp_path_factory.mktemp("models")))
    return RememberingChain(load_chain(release.pins(), shipped=SHIPPED_ARTIFACTS, image_digest=IMAGE, engine=engine))


@dataclass(slots=True)
class Told:
    """What became of one scan of a case: its job, or the reason why it was refused at the door."""

    job_id: str = ""
    refused: str = ""
    outcome: ItemOutcome | None = None

    @property
    def fields(self) -> dict[str, Any]:
        assert self.outcome is not None
        return dict(self.outcome.fields)

    @property
    def total(self) -> tuple[int, str | None]:
        return self.fields["total"]["minor"], self.fields["total"]["currency"]

    @property
    def reasons(self) -> tuple[str, ...]:
        if self.refused or self.outcome is None:
            return (self.refused,)
        return (self.outcome.reason_code,) if self.outcome.reason_code else tuple(self.outcome.reasons)


@dataclass(slots=True)
class ReadingHouse:
    """A house whose worker reads scans with the real chain."""

    house: CaseHouse

    def play(self, folder: Path) -> dict[str, Told]:
        rows = json.loads((folder / "manifest.json").read_bytes())["items"]
        answer = submit_case(self.house.intake, manifest_of(folder), folder)
        told: dict[str, Told] = {}
        for row, line in zip(rows, answer.lines, strict=True):
            told[row["file"]] = Told(job_id=line.job_id or "", refused=line.reason_code)
        self.house.work_off()
        bench = self.house.bench
        for one in told.values():
            if not one.job_id:
                continue
            assert len(bench.attempts(one.job_id)) == 1
            (row,) = bench.items(one.job_id)
            if bench.job(one.job_id)["result_key"] is None:
                one.refused = row["reason_code"]
                continue
            (item,) = bench.result(one.job_id).items
            one.outcome = item.outcome
        counts = balance(self.house.report())
        assert counts["accepted"] == sum(bool(one.job_id) for one in told.values())
        assert counts.get("succeeded", 0) == sum(one.outcome is not None for one in told.values())
        return told


@pytest.fixture
def reading(ledger: Ledger, clock: FakeClock, tmp_path: Path, chain: RememberingChain) -> ReadingHouse:
    house = CaseHouse.build(ledger, clock, tmp_path)
    house.bench.chain = cast(ScriptedChain, chain)
    return ReadingHouse(house)


def test_case_25_a_photo_that_lies_on_its_head_is_read_as_its_upright_copy(shared: Path, reading: ReadingHouse) -> None:
    told = reading.play(case(shared, "25"))
    upright, turned = told["upright.jpg"], told["tag3.jpg"]
    assert upright.total == turned.total == (3145, "EUR")
    assert upright.outcome is not None
    assert turned.outcome is not None
    assert upright.outcome.item_class == turned.outcome.item_class
    assert upright.outcome.decision == turned.outcome.decision


def test_case_26_each_bad_picture_ends_by_its_own_reason_and_the_good_ones_are_read(
    shared: Path, reading: ReadingHouse
) -> None:
    told = reading.play(case(shared, "26"))
    assert told["good.png"].total == (809, "EUR")
    assert told["cmyk.jpg"].total == (2310, "EUR")
    assert told["bomb.png"].reasons == ("SCAN.BOMB.v1",)
    assert told["cut.jpg"].reasons == ("SCAN.BROKEN.v1",)
    assert told["empty.png"].reasons == ("SCAN.EMPTY.v1",)
    assert told["really-pdf.jpg"].reasons == ("SCAN.MEDIA_TYPE.v1",)


def test_case_27_all_pages_count_and_two_receipts_are_never_one(shared: Path, reading: ReadingHouse) -> None:
    told = reading.play(case(shared, "27"))
    long, blank_front, stacked = told["long.pdf"], told["blank-front.pdf"], told["stacked.png"]
    assert long.total == (8745, "EUR")
    assert long.outcome is not None
    assert long.outcome.evidence["pages"] == 3
    assert blank_front.total == (2100, "EUR")
    assert blank_front.outcome is not None
    assert (blank_front.outcome.evidence["pages"], blank_front.outcome.evidence["blank_pages"]) == (2, [0])
    assert "SCAN.SEVERAL_RECEIPTS.v1" in stacked.reasons


def test_case_28_a_dotted_date_is_day_first_and_a_slashed_one_is_never_guessed(
    shared: Path, reading: ReadingHouse
) -> None:
    told = reading.play(case(shared, "28"))
    dotted, slashed = told["dotted.png"].fields["date"], told["slashed.png"].fields["date"]
    assert dotted == {"iso": "2025-03-12", "ambiguous": False, "printed": "12.03.2025"}
    assert slashed == {"iso": None, "ambiguous": True, "printed": "03/04/2025"}
    assert "FIELD.DATE_AMBIGUOUS.v1" in told["slashed.png"].reasons


def test_case_29_marks_and_currency_are_read_as_printed_and_a_bare_total_is_reviewed(
    shared: Path, reading: ReadingHouse
) -> None:
    told = reading.play(case(shared, "29"))
    assert told["comma.png"].total == (123456, "EUR")
    assert told["point.png"].total == (123456, "USD")
    assert told["trailing.png"].total == (4000, "USD")
    assert "FIELD.TOTAL_AMBIGUOUS.v1" in told["bare.png"].reasons


def test_case_30_a_refund_keeps_its_sign_change_is_no_total_and_the_pen_is_reviewed(
    shared: Path, reading: ReadingHouse
) -> None:
    told = reading.play(case(shared, "30"))
    assert told["refund.png"].total == (-3995, "EUR")
    assert "AMOUNT.REFUND.v1" in told["refund.png"].reasons
    assert told["change.png"].total == (1966, "USD")
    assert told["change.png"].fields["payment"] == ["cash"]
    assert told["pen.png"].total[0] in (3000, 3500)
    assert "FIELD.TOTAL_AMBIGUOUS.v1" in told["pen.png"].reasons
