"""The calibrated model: learned from drawn receipts and genuine texts, calibrated on what it never saw."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.risk import CALIBRATED_KIND, load_risk_model
from receipt_pipeline.core.canonical import canonical_json
from receipt_pipeline.evaluation.risk import reliability
from receipt_pipeline.training import train_calibrated
from receipt_pipeline.training.content import draw_content
from receipt_pipeline.training.forge import CLOCK, MONEY, REST, forge
from receipt_pipeline.training.forge_places import MONEY_ANYWHERE, with_other_digit
from receipt_pipeline.training.genuine_texts import GenuineText, content_of_text, read_genuine_texts
from receipt_pipeline.training.picture_weight import PictureWeight, weigh_drawn_copies
from receipt_pipeline.training.train_calibrated import (
    Example,
    draw_example,
    gather,
    kept_for_evaluation,
    learn_calibrated,
    learning_of,
)
from receipt_pipeline.training.train_risk_model import write_model

TEXTS = (
    "SHOP SDN BHD",
    "DATE: 14/03/2018 12:41",
    "TEL 03-7880575",
    "TEA",
    "4.60",
    "TOTAL",
    "4.60",
    "CASH",
    "10.00",
    "CHANGE",
    "5.40",
)


GOODS = (
    *(
        "SHOP SDN BHD",
        "QTY",
        "PRICE",
        "AMOUNT",
        "TEA",
        "2 X",
        "1.30",
        "2.60",
        "COFFEE",
        "1 X",
        "4.60",
        "4.60",
    ),
    *("TOTAL", "7.20", "CASH", "10.00", "CHANGE", "2.80"),
)


def truth_file(folder: Path, name: str, **fields: object) -> None:
    """A truth file in the form of SROIE."""
    document = {"id": name, "sroie_key": name, "company": "SHOP", "forged": False} | fields
    document["lines"] = [{"text": text, "box": [0, 0, 9, 9]} for text in TEXTS]
    (folder / f"{name}.json").write_text(json.dumps(document))


def examples() -> list[Example]:
    """A few dozen drawn receipts and one altered text."""
    return gather([GenuineText("SHOP", "one", TEXTS)], drawn=60, processes=1)


@pytest.mark.parametrize("seed", range(20))
def test_a_forger_alters_a_receipt_and_says_how(seed: int) -> None:
    genuine = draw_content(random.Random(seed))
    altered = forge(genuine, random.Random(seed))
    assert altered.rows != genuine.rows
    assert altered.truth["alteration"] in {**MONEY, **CLOCK, **REST}


@pytest.mark.parametrize("name", sorted(set(MONEY_ANYWHERE) - set(MONEY)))
def test_a_forger_of_single_places_alters_what_it_names_and_little_else(name: str) -> None:
    genuine = content_of_text(GOODS, extract_fields)
    altered = MONEY_ANYWHERE[name](genuine, random.Random(3))
    assert altered is not None
    before, after = ([row.cells[0].text for row in one.rows] for one in (genuine, altered))
    assert len(after) - len(before) == {"good_gone": -1, "good_again": 1}.get(name, 0)
    changed = sum(one != other for one, other in zip(before, after, strict=False))
    assert changed > 0
    if name in ("one_digit", "other_amount", "other_quantity"):
        assert changed == 1
    if name == "whole_good_and_totals":
        assert after[before.index("TOTAL") + 1] != "7.20"


def test_another_digit_is_put_over_one_and_no_zero_in_front() -> None:
    for seed in range(20):
        altered = with_other_digit("12.40", random.Random(seed), "0123")
        assert sum(one != other for one, other in zip("12.40", altered, strict=True)) == 1
        assert altered[0] != "0"


def test_a_receipt_that_offers_nothing_comes_back_as_it_was() -> None:
    bare = content_of_text(("HELLO", "THANK YOU"), extract_fields)
    altered = forge(bare, random.Random(1))
    assert (altered.rows, altered.truth["tampered"]) == (bare.rows, False)


def test_the_lines_of_a_genuine_text_are_known_by_kind() -> None:
    rows = content_of_text(TEXTS, extract_fields).rows
    kinds = {row.cells[0].text: row.kind for row in rows}
    assert kinds["DATE: 14/03/2018 12:41"] == "date"
    assert (kinds["TEL 03-7880575"], kinds["10.00"], kinds["5.40"]) == ("phone", "cash", "change")
    assert rows[6].kind == "total"


def test_no_forged_and_no_evaluated_text_is_learned(tmp_path: Path) -> None:
    truth_file(tmp_path, "kept")
    truth_file(tmp_path, "forged", forged=True)
    truth_file(tmp_path, "free")
    labels = tmp_path / "labels.csv"
    labels.write_text("id,sroie_key,forged\nt-1,kept,0\n")
    found = read_genuine_texts(tmp_path, without=kept_for_evaluation(labels))
    assert [text.key for text in found] == ["free"]


def test_the_model_is_learned_the_same_twice_and_says_how_calibrated_it_is(tmp_path: Path) -> None:
    copies = PictureWeight(genuine=20, genuine_found=0, pasted=20, pasted_found=10)
    document = learn_calibrated(examples(), name="test", source="drawn", copies=copies)
    again = learn_calibrated(examples(), name="test", source="drawn", copies=copies)
    assert canonical_json(document) == canonical_json(again)
    assert document["kind"] == CALIBRATED_KIND
    assert sum(row["count"] for row in document["calibration"]["reliability"]) == len(examples())
    digest = write_model(document, tmp_path)
    model = load_risk_model(tmp_path / f"{digest[7:]}.json", digest)
    assert model.slope == document["calibration"]["slope"] != 1.0
    weight = model.slope * model.coef[model.features.index("figures_copied")]
    assert weight == pytest.approx(copies.log_odds, abs=1e-3)


def test_a_copied_figure_is_weighed_on_drawn_pages_alone() -> None:
    weight = weigh_drawn_copies(6, seed=3)
    assert weight == weigh_drawn_copies(6, seed=3)
    assert (weight.genuine, weight.genuine_found) == (6, 0)
    assert 1 <= weight.pasted_found <= weight.pasted <= 6
    assert weight.log_odds > 0


def test_learning_texts_without_saying_which_are_kept_is_remarked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_calibrated, "gather", lambda texts, **given: examples())
    monkeypatch.setattr(train_calibrated, "COPIES_DRAWN", 1)
    truth_file(tmp_path, "free")
    models, folds = tmp_path / "models", tmp_path / "folds"
    assert train_calibrated.main(["--texts", str(tmp_path), f"--models={models}", f"--folds={folds}"]) == 0
    told = capsys.readouterr()
    assert "without --kept" in told.err
    assert json.loads(told.out)["contract"] == "receipt-features/v4"
    (model,) = models.iterdir()
    (kept,) = folds.iterdir()
    assert kept.name == model.name
    scores = json.loads(kept.read_text())
    assert sum(score["texts"] + score["drawn"] for score in scores) == len(examples())


def test_an_older_chain_is_learned_as_it_was_and_the_newest_from_more_forgers() -> None:
    older, newest = learning_of("chain-v3"), learning_of("chain-v4")
    assert (older.money, older.altered_per_text, older.penalty_inverse) == (MONEY, 10, 0.1)
    assert set(newest.money) > set(older.money)


def test_examples_depend_on_their_number_alone() -> None:
    assert draw_example(5) == draw_example(5) != draw_example(7)


def test_bins_hold_equally_many_and_say_what_came_true() -> None:
    table = reliability([(0.1, False), (0.2, False), (0.8, True), (0.9, True)], bins=2)
    assert [(row["count"], row["risk_mean"], row["forged_share"]) for row in table] == [
        (2, 0.15, 0.0),
        (2, 0.85, 1.0),
    ]
