"""Scorers in edge cases: empty gold, empty readings, equivalent forms, oversized input."""

import sys
import unicodedata
from contextlib import closing
from pathlib import Path

import pytest

from kopub.evaluation import characters
from kopub.evaluation.benchmarks.facts import check, parse
from kopub.evaluation.cdm import Cdm
from kopub.evaluation.characters import (
    normalized_table,
    normalized_text,
)
from kopub.evaluation.layout_boxes import ScoredBox, coco_map, find
from kopub.evaluation.tables import BoundedTeds, teds
from tests.support.installed import imported, needs

ROWS = "<tr><td>가</td><td>나</td></tr><tr><td>1</td><td>2</td></tr>"
TABLE = f"<html><body><table>{ROWS}</table></body></html>"


def in_document(table: str) -> str:
    return f"<html><body>{table}</body></html>"


def table(rows: int, columns: int, first: int = 0) -> str:
    cells = ("".join(f"<td>{first + row * columns + at}</td>" for at in range(columns)) for row in range(rows))
    return in_document(f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>")


def test_a_text_in_single_jamo_is_the_same_text():
    gold = unicodedata.normalize("NFD", "한국어 문서")
    assert characters.character_errors(gold, "한국어 문서").count == 0
    assert characters.bag_f1(gold, "문서 한국어") == 1.0
    assert normalized_text(gold) == "한국어문서"


@pytest.mark.parametrize(("gold", "text", "rate"), [("", "", 0.0), ("", "가나다", 1.0), ("가나", "", 1.0)])
def test_error_rates_without_gold_or_reading(gold: str, text: str, rate: float):
    assert characters.character_errors(gold, text).rate == rate
    assert characters.edit(gold, text) == rate
    assert characters.nid(gold, text) == 1 - rate
    assert characters.bag_f1(gold, text) == 1 - rate


def test_more_than_the_gold_is_more_than_one_error_a_character():
    assert characters.character_errors("가", "가나다라").rate == 3.0


@needs("apted")
class TestTeds:
    def test_a_bare_table_scores_nothing_and_one_in_a_document_all(self):
        bare = f"<table>{ROWS}</table>"
        assert teds(TABLE, bare) == teds(bare, bare) == 0.0
        assert teds(TABLE, in_document(bare)) == 1.0

    @pytest.mark.parametrize("text", ["", " ", "no table", "<html><body><p>x</p></body></html>"])
    def test_nothing_to_compare_scores_nothing(self, text: str):
        assert teds(TABLE, text) == teds(text, TABLE) == teds(text, text) == 0.0

    def test_a_head_cell_is_another_node_with_its_content_below_it(self):
        heads = TABLE.replace("<td>가</td>", "<th>가</th>")
        assert teds(TABLE, heads) == pytest.approx(1 - 1 / 6)
        assert teds(heads.replace("가", "x"), heads) == 1.0

    def test_inline_tags_are_tokens_of_a_cell_and_elements_of_its_table(self):
        bold = TABLE.replace("가", "<b>가</b>")
        # Two of three tokens differ, and there are seven elements instead of six.
        assert teds(TABLE, bold) == pytest.approx(1 - (2 / 3) / 7)
        assert teds(TABLE, bold, structure=True) == 1.0

    def test_other_spans_are_another_cell(self):
        assert teds(TABLE, TABLE.replace("<td>1", '<td colspan="2">1')) == pytest.approx(1 - 1 / 6)

    def test_a_table_of_5000_cells_is_cut_unless_it_is_the_same(self):
        large = table(500, 10)
        with closing(BoundedTeds()) as bounded:
            compared = bounded.compare(large, table(500, 10, first=1))
            assert compared.teds is None
            assert compared.cut
            assert "pairs of nodes" in compared.cut
            assert bounded.compare(large, large).teds == 1.0
            assert bounded.compare(large, "").teds == 0.0

    def test_a_larger_table_is_compared_in_a_process_that_ends_in_time(self):
        gold, text = table(15, 10), table(15, 10, first=3)
        with closing(BoundedTeds()) as bounded:
            compared = bounded.compare(gold, text)
            assert (compared.teds, compared.structure) == (teds(gold, text), 1.0)
        with closing(BoundedTeds(seconds=0.01)) as hurried:
            assert hurried.compare(gold, text).cut == "comparing the tables took more than 0.01 s"
            assert hurried.compare(TABLE, TABLE).teds == 1.0

    def test_a_span_that_is_no_number_counts_as_not_read(self):
        with closing(BoundedTeds()) as bounded:
            assert bounded.compare(TABLE, TABLE.replace("<td>1", '<td colspan="two">1')).teds == 0.0


def test_a_table_in_omnidocbench_s_form_has_no_heads_sections_or_inline_tags():
    head = '<thead><tr><th align="left">H<sup>2</sup></th></tr></thead>'
    html = f'<table class="x">{head}<tbody><tr><td>Ａ</td></tr></tbody></table>'
    wanted = '<html><body><table border="1" ><tr><td>H2</td></tr><tr><td>A</td></tr></table></body></html>'
    assert normalized_table(html) == wanted
    assert normalized_table("no table") == ""


class TestLayout:
    HALF = ScoredBox("text", (0, 0, 10, 10)), ScoredBox("text", (0, 0, 10, 20))

    def test_a_pair_needs_the_same_kind_and_half_of_the_area(self):
        small, large = self.HALF
        assert find([small], [large]).f1 == 1.0
        assert find([small], [ScoredBox("text", (0, 0, 10, 21))]).f1 == 0.0
        assert find([small], [ScoredBox("title", (0, 0, 10, 10))]).f1 == 0.0

    def test_as_many_pairs_as_there_can_be(self):
        """The first region is nearest to both blocks; the second fits only one."""
        gold = [ScoredBox("text", (0, 0, 10, 10)), ScoredBox("text", (0, 2, 10, 12))]
        regions = [ScoredBox("text", (0, 1, 10, 11)), ScoredBox("text", (0, 5, 10, 15))]
        assert find(gold, regions).same == 2

    def test_ignored_blocks_are_neither_missed_nor_wrong_to_find(self):
        gold = [ScoredBox("text", (0, 0, 10, 10)), ScoredBox("", (20, 20, 30, 30), ignored=True)]
        assert find(gold, [gold[0]]).recall == 1.0
        assert find(gold, [gold[0], ScoredBox("figure", (20, 20, 30, 30))]).precision == 1.0

    def test_a_page_without_blocks_is_right_when_none_are_found(self):
        assert find([], []).f1 == find([], []).precision == 1.0
        assert find([], [ScoredBox("text", (0, 0, 1, 1))]).f1 == 0.0

    def test_average_precision_without_regions_or_gold(self):
        imported("pycocotools")
        assert coco_map([[self.HALF[0]]], [[]]) == 0.0
        assert coco_map([[]], [[self.HALF[0]]]) is None


class TestFacts:
    def test_a_page_with_hanja_may_have_them(self):
        fact = {"pdf": "a.pdf", "page": 1, "id": "x", "type": "baseline"}
        assert check(parse(fact, "g"), "大韓民國").holds is False
        assert check(parse({**fact, "check_disallowed_characters": False}, "g"), "大韓民國").holds is True

    @needs("fuzzysearch")
    def test_korean_facts_of_each_kind(self):
        rows = "| 지역 | 인구 |\n|--|--|\n| 서울 | 9,386 |\n| 부산 | 3,279 |"
        page = unicodedata.normalize("NFD", f"# 인구\n\n{rows}\n\n서울이 가장 많다.\n부산이 다음이다.")
        about = {"pdf": "a.pdf", "page": 1, "id": "x"}
        for right in (
            {"type": "present", "text": "서울이 가장 많다"},
            {"type": "absent", "text": "대구가 다음이다"},
            {"type": "order", "before": "서울이 가장", "after": "부산이 다음"},
            {"type": "table", "cell": "9,386", "left": "서울", "down": "3,279", "top_heading": "인구"},
        ):
            assert check(parse(about | right, "g"), page).holds is True, right
        for wrong in (
            {"type": "present", "text": "대구가 다음이다"},
            {"type": "order", "before": "부산이 다음", "after": "서울이 가장"},
            {"type": "table", "cell": "9,386", "left": "부산"},
        ):
            assert check(parse(about | wrong, "g"), page).holds is False, wrong

    def test_neighbours_look_over_cells_that_span(self):
        page = (
            '<table><tr><th></th><th colspan="2">2023</th></tr><tr><td rowspan="2">매출</td><td>1</td><td>2</td></tr>'
            "<tr><td>3</td><td>4</td></tr></table>"
        )
        about = {"pdf": "a.pdf", "page": 1, "id": "x", "type": "table"}
        assert check(parse({**about, "cell": "4", "left_heading": "매출", "top_heading": "2023"}, "g"), page).holds
        assert check(parse({**about, "cell": "매출", "right": "3"}, "g"), page).holds


class TestCdm:
    PAIRS = (("x", "x"), ("x", ""), ("x", "y"))

    def command(self, *how: str) -> Cdm:
        return Cdm([sys.executable, "-m", "tests.doubles.cdm_command", *how])

    def test_a_command_that_knows_the_examples_is_used(self):
        cdm = self.command()
        assert cdm.why_not() is None
        assert cdm.score(self.PAIRS) == [1.0, 0.0, 0.5]
        assert cdm.score([("x", "\\undrawable")]) == [None]

    @pytest.mark.parametrize(
        ("how", "why"),
        [
            ("zeros", "its three examples score 0.00, 0.00, 0.00 instead of 0.82, 0.71, 0.95"),
            ("silent", "0 answers to 3 pairs, exit 1, it said xelatex: not found"),
            ("broken", "an answer is no line of JSON: no JSON"),
        ],
    )
    def test_one_that_does_not_is_skipped(self, how: str, why: str):
        assert self.command(how).why_not() == f"CDM does not work here: {why}"

    def test_one_that_is_not_there_is_skipped(self):
        assert Cdm(["no-such-program"]).why_not() == (
            "CDM does not work here: no-such-program cannot be run: No such file or directory"
        )

    def test_the_script_of_the_container_speaks_the_command_s_language(self, tmp_path: Path):
        """The official code's double prints, boxes each letter, and draws nothing for a leading `!`."""
        (tmp_path / "metrics").mkdir()
        (tmp_path / "metrics/__init__.py").touch()
        (tmp_path / "metrics/cdm_metric.py").write_text(OFFICIAL, "utf-8")
        script = Path(__file__).parents[2] / "deploy/cdm/cdm_pairs.py"
        cdm = Cdm(["env", f"PYTHONPATH={tmp_path}", sys.executable, str(script)])
        assert cdm.score([("$$ab$$", "ab"), ("ab", "!b"), ("!b", "ab"), ("ab", "```latex\nac\n```")]) == [
            1.0,
            0.0,
            None,
            0.5,
        ]
        assert (
            cdm.why_not()
            == "CDM does not work here: its three examples score 0.00, 0.00, 0.00 instead of 0.82, 0.71, 0.95"
        )


OFFICIAL = """
import json, os
class CDM:
    def __init__(self, output_root):
        self.output_root = output_root
    def _prepare_directories(self, name):
        for side in ("gt", "pred"):
            os.makedirs(os.path.join(self.output_root, side, "bbox"))
    def _generate_bboxes(self, gold, text, name):
        print("This is XeTeX")
        os.system("echo This is xdvipdfmx")
        for side, latex in (("gt", gold), ("pred", text)):
            if not latex.startswith("!"):
                with open(os.path.join(self.output_root, side, "bbox", name + ".jsonl"), "w") as file:
                    [file.write(json.dumps({"bbox": [at], "token": each}) + "\\n") for at, each in enumerate(latex)]
    def _load_images(self, name):
        return None, None
    def _match_boxes(self, gold, read, *pictures):
        return None, [g == r for g, r in zip(gold, read)] if len(gold) < 10 else []
    def _calculate_metrics(self, gold, read, inliers):
        return None, None, 2 * sum(inliers) / (len(gold) + len(read))
"""
