"""The scorers reproduce the numbers of the benchmarks' authors to the last digit."""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kopub.evaluation import characters
from kopub.evaluation.benchmark import Fact
from kopub.evaluation.benchmarks.facts import check
from kopub.evaluation.layout_boxes import ScoredBox, coco_map
from kopub.evaluation.tables import teds
from tests.support.installed import imported, needs

KNOWN = Path(__file__).parent / "known"
ELSEWHERE = os.environ.get("KOPUB_TEST_EVAL_REFERENCE")
OMNIDOCBENCH = Path(ELSEWHERE or ".") / "omnidocbench_demo"
needs_omnidocbench = pytest.mark.skipif(
    not (ELSEWHERE and OMNIDOCBENCH.is_dir()),
    reason="no omnidocbench_demo/, whose licence keeps it out of here: KOPUB_TEST_EVAL_REFERENCE=FOLDER make test",
)


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def expected(name: str) -> Any:
    return read(OMNIDOCBENCH / "expected" / f"{name}.json")


@needs("apted")
def test_pubtabnet_s_teds_bit_for_bit():
    gold, text = read(KNOWN / "pubtabnet/sample_gt.json"), read(KNOWN / "pubtabnet/sample_pred.json")
    wanted = read(KNOWN / "pubtabnet/expected.json")
    assert len(gold) == 12
    for name in gold:
        assert teds(gold[name]["html"], text[name]) == wanted[name]["official"], name
        assert teds(gold[name]["html"], text[name], structure=True) == wanted[name]["structure_only"], name


@needs("fuzzysearch")
def test_the_verdict_on_each_fact_of_olmocr_bench():
    folder = KNOWN / "olmocr_bench"
    results = {each["id"]: each["result"] for each in read(folder / "expected.json")}
    names = {"pass": True, "fail": False, "skipped: needs a browser": None}
    facts = [
        json.loads(line)
        for name in ("dataset", "blanks")
        for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()
        if line.strip()
    ]
    assert len(facts) == len(results) == 100
    for fields in facts:
        page = f"{fields['pdf'].removesuffix('.pdf')}_pg{fields['page']}_repeat1.md"
        markdown = (folder / "olmocr_pipeline" / page).read_text("utf-8")
        verdict = check(Fact(fields["id"], fields["type"], "sample", fields), markdown)
        assert verdict.holds is names[results[fields["id"]]], (fields["id"], verdict)
        assert bool(verdict.why) == (verdict.holds is not True)


def test_error_rates_of_korean_and_their_means():
    case = read(KNOWN / "error_rates.json")
    gold, text = case["gold"], case["pred"]
    assert characters.spaced_errors(gold, text).rate == pytest.approx(case["cer_nfc"])
    assert characters.character_errors(gold, text).rate == pytest.approx(case["cer_nfc_without_spaces"])
    assert characters.jamo_errors(gold, text).rate == pytest.approx(case["cer_nfd_jamo"])
    assert characters.word_errors(gold, text).rate == case["wer"]
    two = case["pooled_two_documents"]
    errors = [characters.character_errors(*pair) for pair in zip(two["gold"], two["pred"], strict=True)]
    assert characters.pooled(errors) == two["jiwer_pooled"]
    assert sum(each.rate for each in errors) / 2 == two["mean_of_documents"]


@needs_omnidocbench
def test_omnidocbench_s_text():
    pairs = expected("text_pairs")
    found = [
        (pair["image_name"], characters.edits(pair["gt"], pair["pred"], pair["norm_gt"], pair["norm_pred"]))
        for pair in pairs
    ]
    wanted = expected("end2end_quick_match_metric_result")["text_block"]["all"]["Edit_dist"]
    assert _page_mean(found) == pytest.approx(wanted["ALL_page_avg"], abs=1e-12)
    assert _whole([edits for _, edits in found]) == pytest.approx(wanted["edit_whole"], abs=1e-12)
    shares = [edits.share for _, edits in found if edits.size]
    assert sum(shares) / len(shares) == pytest.approx(wanted["edit_sample_avg"])
    # A predicted formula is normalised as one, even where the gold is text.
    rules = {characters.normalized_text, characters.normalized_formula}
    for pair in pairs:
        assert characters.normalized_text(pair["gt"]) == pair["norm_gt"]
        assert pair["norm_pred"] in {rule(pair["pred"]) for rule in rules}


@needs_omnidocbench
def test_omnidocbench_s_tables():
    pairs, found = expected("table_pairs"), []
    for pair in pairs:
        gold, text = characters.normalized_table(pair["gt"]), characters.normalized_table(pair["pred"])
        assert (gold, text) == (pair["norm_gt"], pair["norm_pred"])
        assert teds(gold, text) == pair["metric"]["TEDS"]
        assert teds(gold, text, structure=True) == pair["metric"]["TEDS_structure_only"]
        found.append((pair["img_id"], characters.edits(pair["gt"], pair["pred"], gold, text)))
    assert _page_mean(found) == pytest.approx(0.202719, abs=5e-7)


@needs_omnidocbench
def test_omnidocbench_s_formulas():
    found = []
    for pair in expected("formula_pairs"):
        assert characters.normalized_formula(pair["gt"]) == pair["norm_gt"]
        edits = characters.edits(pair["gt"], pair["pred"], pair["norm_gt"], pair["norm_pred"])
        assert edits.share == pytest.approx(pair["metric"]["Edit_dist"])
        found.append((pair["image_name"], edits))
    assert _page_mean(found) == pytest.approx(0.318945, abs=5e-7)


@needs_omnidocbench
def test_omnidocbench_s_reading_order():
    pages = expected("reading_order_pairs")
    edits = [characters.edit(page["gt"], page["pred"]) for page in pages]
    assert edits == [page["edit"] for page in pages]
    assert sum(edits) / len(edits) == pytest.approx(0.161337, abs=5e-7)


@needs_omnidocbench
def test_omnidocbench_s_mean_average_precision():
    """OmniDocBench's configuration names the classes; categories it does not name keep theirs."""
    imported("pycocotools")
    classes = {"title", "text", "abandon", "figure", "figure_caption", "table", "table_caption", "table_footnote"}
    classes |= {"isolate_formula", "formula_caption"}
    gold_names = dict.fromkeys(("page_number", "header", "page_footnote", "footer"), "abandon") | {
        "code_txt": "figure",
        "equation_caption": "formula_caption",
        "equation_isolated": "isolate_formula",
        "text_block": "text",
    }
    detections = read(OMNIDOCBENCH / "detection_prediction.json")
    names = {number: name.replace("plain text", "text") for number, name in detections["categories"].items()}
    gold, regions = [], []
    for page in read(OMNIDOCBENCH / "OmniDocBench_demo.json"):
        blocks = [
            (gold_names.get(b["category_type"], b["category_type"]), (*b["poly"][:2], *b["poly"][4:6]))
            for b in page["layout_dets"]
        ]
        gold.append([ScoredBox(kind, box) for kind, box in blocks if kind in classes])
        stem = page["page_info"]["image_path"].removesuffix(".jpg")
        regions.append(
            [
                ScoredBox(names[str(found["category_id"])], tuple(found["bbox"]), found["score"])
                for found in detections["results"]
                if found["image_name"] == stem
            ]
        )
    assert coco_map(gold, regions) == pytest.approx(expected("layout_map")["bbox_mAP"], abs=1e-12)


def _page_mean(pairs: Iterable[tuple[str, characters.Edits]]) -> float:
    """Return OmniDocBench's `ALL_page_avg`: the mean over pages of edits divided by length."""
    pages: defaultdict[str, list[characters.Edits]] = defaultdict(list)
    for page, each in pairs:
        pages[page].append(each)
    shares = [_whole(of_page) for of_page in pages.values() if any(each.size for each in of_page)]
    return sum(shares) / len(shares)


def _whole(pairs: Sequence[characters.Edits]) -> float:
    """Return OmniDocBench's `edit_whole`: all edits divided by all lengths."""
    return sum(each.count for each in pairs) / sum(each.size for each in pairs)
