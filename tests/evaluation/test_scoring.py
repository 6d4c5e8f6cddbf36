"""Scores of all kinds of readings and of lost ones, by benchmark, and their means."""

import sys
import unicodedata
from dataclasses import replace

import pytest

from kopub.evaluation.benchmark import (
    MISSING,
    Answers,
    Element,
    ElementList,
    Fact,
    FactList,
    Formula,
    Gold,
    LineText,
    PageText,
    Sample,
    SampleQuestion,
    SampleReading,
    SampleScore,
    TableHtml,
    gold_from_json,
    gold_to_json,
)
from kopub.evaluation.cdm import Cdm
from kopub.evaluation.metrics import ALL, METRICS, changes, means
from kopub.evaluation.scoring import ADAPTERS, Scorer
from kopub.states import State
from tests.support.installed import imported, needs
from tests.support.readings import reading, region

TABLE = "<table><tr><td>지역</td><td>인구</td></tr><tr><td>서울</td><td>9,386</td></tr></table>"
BLOCKS = ElementList(
    (
        Element("1", "title", (0.1, 0.0, 0.9, 0.1), 1, "제1장 인구"),
        Element("2", "text_block", (0.1, 0.1, 0.9, 0.3), 2, "서울이 가장 많다."),
        Element("3", "text_block", (0.1, 0.3, 0.9, 0.5), 3, "부산이 다음이다."),
        Element("4", "table", (0.1, 0.5, 0.9, 0.7), 4, html=TABLE.replace("td>지역</td", "th>지역</th")),
        Element("5", "equation_isolated", (0.1, 0.7, 0.9, 0.8), 5, latex="$$\na = b\n$$"),
        Element("6", "page_number", (0.4, 0.9, 0.6, 1.0), None, "7"),
        Element("7", "text_mask", (0.0, 0.85, 0.1, 0.9), None, "", ignored=True),
    ),
    1000,
    1000,
)
GOLD: dict[str, Gold] = {
    "texts": PageText("서울이 가장 많다."),
    "omnidocbench": BLOCKS,
    "dp_bench": ElementList(
        (Element("0", "Heading1", (0, 0, 1, 1), 0, "인구"), Element("1", "Table", (0, 0, 1, 1), 1, html=TABLE)), 1, 1
    ),
    "pubtabnet": TableHtml(f"<html><body>{TABLE}</body></html>"),
    "unimer": Formula("a = b"),
    "iam_lines": LineText("a line of text"),
    "facts": FactList((Fact("a", "present", "g", {"type": "present", "text": "서울이"}),)),
    "ocrbench": Answers((SampleQuestion("q", "누가?", ("서울", "부산")),)),
}
RIGHT: dict[str, SampleReading] = {
    "texts": reading(region("서울이 가장 많다.")),
    "omnidocbench": reading(
        region("제1장 인구", "paragraph_title", (100, 0, 900, 100), 0),
        region("서울이 가장 많다.", "text", (100, 100, 900, 300), 1),
        region("부산이 다음이다.", "text", (100, 300, 900, 500), 2),
        region(TABLE, "table", (100, 500, 900, 700), 3),
        region("a = b", "display_formula", (100, 700, 900, 800), 4),
        region("7", "number", (400, 900, 600, 1000), 5),
    ),
    "dp_bench": reading(region("인구"), region(TABLE, "table", index=1)),
    "pubtabnet": reading(region(TABLE, "table")),
    "unimer": reading(region("a = b", "display_formula")),
    "iam_lines": reading(region("a line of text")),
    "facts": reading(region("서울이 가장 많다.")),
    "ocrbench": reading(region("서울이 가장 많다.")),
}


def sample(gold: Gold, id: str = "a_1", **other: object) -> Sample:
    return replace(Sample(id, id, None, {}, gold), **other)


def scored(name: str, read: SampleReading, gold: Gold | None = None) -> dict[str, SampleScore]:
    for package in ADAPTERS[name].packages:
        imported(package)
    with Scorer(name, None) as scorer:
        return {score.metric: score for score in scorer.score(sample(gold or GOLD[name]), read)}


@pytest.mark.parametrize("name", GOLD)
def test_a_right_reading_has_the_best_value_and_a_lost_one_the_worst(name: str):
    right = scored(name, RIGHT[name])
    assert right.keys() >= set(ADAPTERS[name].headline)
    for metric, score in right.items():
        assert score.value in (None, 1.0 - METRICS[metric].worst), (metric, score)
    for lost in (MISSING, SampleReading(State.FAILED, "no answer"), SampleReading(State.QUARANTINED, "no picture")):
        worst = scored(name, lost)
        assert worst.keys() == right.keys()
        for metric, score in worst.items():
            if right[metric].value is not None:
                assert (score.value, score.lost) == (METRICS[metric].worst, True)
                assert score.notes


@pytest.mark.parametrize("name", GOLD)
def test_gold_is_the_same_after_it_was_stored(name: str):
    assert gold_from_json(gold_to_json(GOLD[name])) == GOLD[name]


def test_a_blank_page_with_empty_gold_is_right_and_a_lost_one_is_not():
    assert scored("texts", SampleReading(State.BLANK), PageText(" \n"))["cer"].value == 0.0
    assert scored("texts", SampleReading(State.BLANK))["cer"].value == 1.0
    assert scored("texts", SampleReading(State.FAILED), PageText(""))["cer"].value == 1.0


def test_a_page_of_which_too_much_was_read_is_as_bad_as_a_lost_one():
    assert scored("texts", reading(region("가나다" * 50)))["cer"].value == 1.0


def test_the_numbers_of_list_entries_in_markdown_are_printed():
    gold = PageText("1. 사업 개요\n2. 추진 배경\n   1) 목적\n\n- 점", markdown=True)
    read = reading(region("1. 사업 개요\n2. 추진 배경\n1) 목적\n점"))
    with Scorer("texts") as scorer:
        scores = {score.metric: score.value for score in scorer.score(sample(gold), read)}
    assert (scores["cer_blanks"], scores["bag_f1"]) == (0.0, 1.0)


def test_gold_in_markdown_is_compared_without_its_markup():
    gold = PageText(f"# 제1장\n\n- **굵게** 쓴\n\n![그림](a.png)\n\n{TABLE}", markdown=True)
    assert scored("texts", reading(region("제1장 굵게 쓴 지역 인구 서울 9,386")), gold)["cer"].value == 0.0


class TestTables:
    GOLD = TableHtml(
        "<html><body><table><thead><tr><th><b>지역</b></th><th>10<sup>3</sup></th></tr></thead>"
        "<tbody><tr><td>서울<br>특별시</td><td colspan='2'> 1 </td></tr></tbody></table></body></html>"
    )

    @pytest.mark.parametrize(
        "html",
        [
            "<table><tr><td>지역<td>10<sup>3</sup><tr><td>서울 특별시<td colspan=2>1</table>",
            "표 1 <table><caption>c</caption><tr><th>지역</th><th>10<sup>3</sup></th></tr>"
            "<tr><td>서울<br/>특별시</td><td colspan='2'>1</td></tr></table> 주",
            "<table><tr><td><!-- x --><u>지역</u></td><td>10<sup>3</sup></td></tr>"
            "<tr><td>서울 <br> 특별시</td><td colspan='2'>1</td></tr>",
        ],
    )
    def test_marks_of_heads_and_sections_unclosed_cells_and_breaks_are_no_difference(self, html: str):
        assert scored("pubtabnet", reading(region(html, "table")), self.GOLD)["teds"].value == 1.0

    def test_syllables_in_single_letters_are_no_difference(self):
        html = unicodedata.normalize("NFD", self.GOLD.html)
        assert scored("pubtabnet", reading(region(html, "table")), self.GOLD)["teds"].value == 1.0

    def test_other_text_and_spans_are(self):
        html = "<table><tr><td>지역<td>10<sup>2</sup><tr><td>서울 특별시<td>1</table>"
        score = scored("pubtabnet", reading(region(html, "table")), self.GOLD)["teds"]
        # One of five tokens and the span of one cell differ; with the `sup` there are seven elements.
        assert score.value == pytest.approx(1 - (1 / 5 + 1) / 7)
        assert score.notes == ("table 1: 0.829",)


@needs("apted", "pylatexenc")
class TestBlocks:
    def test_regions_in_another_order(self):
        regions = list(RIGHT["omnidocbench"].regions)
        regions[1], regions[2] = regions[2], regions[1]
        scores = scored("omnidocbench", reading(*regions))
        assert scores["order_edit"].value == pytest.approx(2 / 3)
        assert scores["bag_f1"].value == 1.0
        assert scores["page_edit"].value not in (None, 0.0)
        assert scores["layout_f1"].value == 1.0

    def test_a_region_that_covers_two_blocks_reads_them_in_their_order(self):
        first, *_, table, formula, number = RIGHT["omnidocbench"].regions
        both = region("서울이 가장 많다. 부산이 다음이다.", "text", (100, 100, 900, 500), 1)
        scores = scored("omnidocbench", reading(first, both, table, formula, number))
        assert (scores["order_edit"].value, scores["page_edit"].value) == (0.0, 0.0)

    def test_a_table_that_was_not_read_scores_nothing_and_weighs_as_one(self):
        regions = [each for each in RIGHT["omnidocbench"].regions if each.label != "table"]
        scores = scored("omnidocbench", reading(*regions))
        assert (scores["teds"].value, scores["teds"].size, scores["table_edit"].value) == (0.0, 1, 1.0)

    def test_tables_are_paired_by_what_is_in_them(self):
        other = TABLE.replace("서울", "부산").replace("9,386", "3,279")
        gold = replace(BLOCKS, elements=(*BLOCKS.elements, Element("8", "table", (0.1, 0.5, 0.9, 0.7), 6, html=other)))
        read = reading(region(other, "table"), region(TABLE, "table", index=1))
        assert scored("omnidocbench", read, gold)["teds"].value == 1.0

    def test_without_cdm_there_is_no_overall_and_the_reason_is_named(self):
        with Scorer("omnidocbench") as scorer:
            *_, whole = scorer.score_all([(sample(BLOCKS), RIGHT["omnidocbench"])])
        overall = next(score for score in whole if score.metric == "page_overall")
        assert overall.value is None
        assert overall.skipped_reason == ("there is no cdm: it is off: name a command that draws formulas (deploy/cdm)")

    def test_with_a_cdm_that_works_there_is_one(self):
        cdm = Cdm([sys.executable, "-m", "tests.doubles.cdm_command"])
        gold = replace(BLOCKS, elements=tuple(replace(e, latex="a = b" if e.latex else "") for e in BLOCKS.elements))
        with Scorer("omnidocbench", cdm) as scorer:
            *_, whole = scorer.score_all([(sample(gold), RIGHT["omnidocbench"])])
        assert {score.metric: score.value for score in whole}["page_overall"] == 1.0


def test_answers_are_looked_for_and_not_asked_for():
    half = scored("ocrbench", reading(region("대구와 대전")))
    assert (half["answer_recall"].value, half["answer_similarity"].value) == (0.0, 0.0)
    assert half["answer_recall"].notes == ("q: '서울' is not in the text",)
    gold = Answers((SampleQuestion("q", "", ("서울특별시",)), SampleQuestion("f", "", ("x ^ { 2 }",), dense=True)))
    near = scored("ocrbench", reading(region("서울틀별시 x^{2}")), gold)
    assert near["answer_recall"].value == 0.5
    assert near["answer_similarity"].value == pytest.approx((0.8 + 1.0) / 2)


@needs("fuzzysearch")
def test_olmocr_s_mean_is_over_its_files():
    facts = [Fact(str(at), "present", "large", {"type": "present", "text": "가"}) for at in range(3)]
    facts.append(Fact("x", "present", "small", {"type": "present", "text": "없다"}))
    with Scorer("facts") as scorer:
        page, whole = scorer.score_all([(sample(FactList(tuple(facts))), reading(region("가나다")))])
    assert page[0].value == pytest.approx(3 / 4)
    assert whole[0].value == pytest.approx((1 + 0) / 2)


class TestMeans:
    SAMPLES = tuple(
        sample(PageText("x"), f"p_{at}", document=f"d{at // 2}", slices={"language": "korean" if at < 8 else "english"})
        for at in range(16)
    )

    def scores(self, *values: float, metric: str = "cer") -> list[SampleScore]:
        return [
            SampleScore(each.id, metric, value, size=1 + 9 * (each.id == "p_0"))
            for each, value in zip(self.SAMPLES, values, strict=False)
        ]

    def test_the_mean_of_pages_and_the_pooled_rate_are_two_numbers(self):
        values = [1.0] + [0.0] * 15
        found = means(self.SAMPLES, [*self.scores(*values), *self.scores(*values, metric="cer_pooled")])
        by_name = {mean.metric: mean for mean in found if mean.slice == ALL}
        assert by_name["cer"].value == pytest.approx(1 / 16)
        assert by_name["cer_pooled"].value == pytest.approx(10 / 25)
        assert (by_name["cer"].samples, by_name["cer"].documents) == (16, 8)

    def test_slices_and_intervals_by_document(self):
        found = {mean.slice: mean for mean in means(self.SAMPLES, self.scores(*([0.2] * 8 + [0.4] * 8)))}
        assert found["language: korean"].value == pytest.approx(0.2)
        assert found["language: korean"].low == pytest.approx(0.2)
        everything = found[ALL]
        assert everything.low is not None
        assert everything.high is not None
        assert everything.low < 0.3 < everything.high

    def test_lost_samples_count_and_are_counted(self):
        lost = [SampleScore("p_0", "cer", 1.0, lost=True), *self.scores(*[0.1] * 16)[1:]]
        mean = means(self.SAMPLES, lost)[0]
        assert mean.lost == 1
        assert mean.value == pytest.approx((1 + 15 * 0.1) / 16)
        assert mean.without_lost == pytest.approx(0.1)

    def test_what_was_skipped_is_in_no_mean_and_says_why(self):
        skipped = [SampleScore("p_0", "teds", None, skipped_reason="too large"), SampleScore("p_1", "teds", 0.5)]
        mean = means(self.SAMPLES, skipped)[0]
        assert (mean.value, mean.samples, mean.skipped, mean.skipped_reason) == (0.5, 1, 1, "too large")
        nothing = means(self.SAMPLES, skipped[:1])[0]
        assert (nothing.value, nothing.samples, nothing.skipped) == (None, 0, 1)

    def test_only_samples_of_both_runs_are_compared(self):
        before, now = self.scores(*[0.1] * 16), self.scores(*[0.3] * 8)
        change = changes(self.SAMPLES, before, now)[0]
        assert (change.samples, change.documents) == (8, 4)
        assert change.previous == pytest.approx(0.1)
        assert change.change == pytest.approx(0.2)
        assert not change.worse  # four documents are too few for certainty

    def test_a_change_to_the_worse_that_is_sure_and_large_enough(self):
        before = self.scores(*[0.1] * 16)
        assert changes(self.SAMPLES, before, self.scores(*[0.12] * 16))[0].worse
        assert not changes(self.SAMPLES, before, self.scores(*[0.102] * 16))[0].worse
        assert not changes(self.SAMPLES, before, self.scores(*[0.05] * 16))[0].worse
        teds = self.scores(*[0.9] * 16, metric="teds_s")
        assert changes(self.SAMPLES, teds, self.scores(*[0.88] * 16, metric="teds_s"))[0].worse
        assert not changes(self.SAMPLES, teds, self.scores(*[0.95] * 16, metric="teds_s"))[0].worse
