"""Training: learned from drawn receipts and genuine texts, calibrated on what the model never saw."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from receipt_pipeline.chain.features.table import FEATURE_CONTRACT, FEATURES
from receipt_pipeline.chain.release import load_chain, load_risk_model, shipped_releases
from receipt_pipeline.chain.risk import MODEL_KIND
from receipt_pipeline.core.canonical import canonical_json
from receipt_pipeline.evaluation.risk import reliability
from receipt_pipeline.settings import SHIPPED_ARTIFACTS
from receipt_pipeline_tests.fakes.scripted_ocr import ScriptedOcr
from training import fit
from training.fit import Example, draw_example, gather, kept_for_evaluation, learn_calibrated, out_of_fold
from training.genuine_texts import GenuineText, content_of_text, read_genuine_texts
from training.picture_weight import PictureWeight, weigh_drawn_copies
from training.write_releases import PLANS, write_releases

IMAGE = "sha256:" + "c" * 64
TEXTS = (
    *("SHOP SDN BHD", "DATE: 14/03/2018 12:41", "TEL 03-7880575", "TEA", "4.60", "TOTAL", "4.60"),
    *("CASH", "10.00", "CHANGE", "5.40"),
)


def truth_file(folder: Path, name: str, **fields: object) -> None:
    document = {"id": name, "sroie_key": name, "company": "SHOP", "forged": False} | fields
    document["lines"] = [{"text": text, "box": [0, 0, 9, 9]} for text in TEXTS]
    (folder / f"{name}.json").write_text(json.dumps(document))


@cache
def examples() -> tuple[Example, ...]:
    return tuple(gather([GenuineText("SHOP", "one", TEXTS)], seed=1212, drawn=60, processes=1))


def test_the_lines_of_a_genuine_text_are_known_by_kind() -> None:
    rows = content_of_text(TEXTS).rows
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


def test_examples_depend_on_seed_and_number_alone() -> None:
    assert draw_example(5, seed=1) == draw_example(5, seed=1) != draw_example(7, seed=1)
    assert draw_example(5, seed=1) != draw_example(5, seed=2)


def test_the_model_is_learned_the_same_twice_and_says_how_calibrated_it_is() -> None:
    copies = PictureWeight(genuine=20, genuine_found=0, pasted=20, pasted_found=10)
    held_out = out_of_fold(examples())
    document = learn_calibrated(examples(), held_out, copies, name="test", seed=1212)
    again = learn_calibrated(examples(), out_of_fold(examples()), copies, name="test", seed=1212)
    assert canonical_json(document) == canonical_json(again)
    assert (document["kind"], document["contract"]) == (MODEL_KIND, FEATURE_CONTRACT)
    assert sum(row["count"] for row in document["calibration"]["reliability"]) == len(examples())
    slope, names = document["calibration"]["slope"], document["features"]
    assert not fit.NOT_LEARNED - {"figures_copied"} & set(names)
    assert slope * document["coef"][names.index("figures_copied")] == pytest.approx(copies.log_odds, abs=1e-3)
    weights = dict(zip(names, document["coef"], strict=True))
    assert all((weight < 0) == (name in fit.SPEAKS_FOR_GENUINE) for name, weight in weights.items())


def test_a_copied_figure_is_weighed_on_drawn_pages_alone() -> None:
    weight = weigh_drawn_copies(6, seed=3)
    assert weight == weigh_drawn_copies(6, seed=3)
    assert (weight.genuine, weight.genuine_found) == (6, 0)
    assert 1 <= weight.pasted_found <= weight.pasted <= 6
    assert weight.log_odds > 0


def test_a_small_training_writes_releases_that_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "COPIES_DRAWN", 1)
    truth_file(tmp_path, "free")
    artifacts = tmp_path / "artifacts"
    options = ["--texts", str(tmp_path), "--artifacts", str(artifacts), "--drawn", "60", "--processes", "1"]
    assert fit.main(options) == 0
    printed = capsys.readouterr()
    assert "without --kept" in printed.err
    digests = json.loads(printed.out)
    ships = shipped_releases(artifacts, image_digest=IMAGE)
    assert {one.name: one.release.risk_model_digest for one in ships} == digests
    for one in ships:
        load_chain(one.release.pins(), shipped=artifacts, image_digest=IMAGE, engine=ScriptedOcr())
        scores = json.loads((artifacts / "folds" / f"{one.release.risk_model_digest[7:]}.json").read_bytes())
        assert sum(score["texts"] + score["drawn"] for score in scores) == len(examples())
    assert len(set(digests.values())) == len(PLANS)


def test_the_shipped_templates_and_policies_are_what_the_plans_say(tmp_path: Path) -> None:
    ships = shipped_releases(SHIPPED_ARTIFACTS, image_digest=IMAGE)
    write_releases(tmp_path, {one.name: one.release.risk_model_digest for one in ships})
    for folder in ("policies", "releases"):
        written, shipped = (
            {path.name: path.read_bytes() for path in (root / folder).iterdir()}
            for root in (tmp_path, SHIPPED_ARTIFACTS)
        )
        assert written == shipped


def test_the_shipped_models_are_of_their_plans_and_read_no_unknown_feature() -> None:
    known = {feature.name for feature in FEATURES}
    seeds = {plan.name: plan.seed for plan in PLANS}
    for one in shipped_releases(SHIPPED_ARTIFACTS, image_digest=IMAGE):
        digest = one.release.risk_model_digest
        document = json.loads((SHIPPED_ARTIFACTS / "models" / f"{digest[7:]}.json").read_bytes())
        assert (document["name"], document["trained_on"]["seed"]) == (one.name, seeds[one.name])
        assert set(load_risk_model(SHIPPED_ARTIFACTS, digest).features) <= known


def test_bins_hold_equally_many_and_say_what_came_true() -> None:
    table = reliability([(0.1, False), (0.2, False), (0.8, True), (0.9, True)], bins=2)
    assert [(row["count"], row["risk_mean"], row["forged_share"]) for row in table] == [(2, 0.15, 0.0), (2, 0.85, 1.0)]
