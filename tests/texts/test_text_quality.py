"""Bad texts of Korean pages are doubted with a reason; good ones are not."""

import json
import random
import string
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from benchmarks.reading.text_quality import DAMAGE, REGION_DAMAGE, read_pages, text_of
from kopub.config.settings import ROOT
from kopub.embedding.hashed import HashedEmbedder
from kopub.states import State
from kopub.tables.ocr_and_texts import TEXTS_LOOK_RIGHT, boxes_of
from kopub.texts.text_quality import DOUBTFUL, Doubt, JudgedRegion, doubtful, doubts, total
from tests.cli.test_cli import run
from tests.search.test_search import Typist
from tests.support.harness import Platform
from tests.support.sources.corpora import pages

SAMPLES = {row["id"]: row["text"] for row in read_pages(ROOT / "samples")}
PROSE = SAMPLES["install.ko_98"]


def kinds(text: str, *boxes: JudgedRegion) -> set[str]:
    return {doubt.kind for doubt in doubts(text, boxes) if doubt.weight >= DOUBTFUL}


def test_independent_signs_of_a_bad_text_add_up():
    signs = [Doubt("unsure", 0.3, "one"), Doubt("marks", 0.2, "another")]
    assert total(signs[:1]) == 0.3 < DOUBTFUL
    assert total(signs) == pytest.approx(0.44)


def test_a_page_exactly_at_the_limit_is_doubtful_and_the_worst_comes_first():
    doubt = [DOUBTFUL - 0.001, DOUBTFUL, None, 1.0]
    found = doubtful(pa.table({"page_id": ["a", "b", "c", "d"], "doubt": doubt, "doubts": [["why"]] * 4}))
    assert [page.page_id for page in found] == ["d", "b"]


@pytest.mark.parametrize("page_id", SAMPLES)
def test_real_pages_are_not_doubted(page_id: str):
    assert total(doubts(SAMPLES[page_id])) < DOUBTFUL


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "제 1 장",
        (ROOT / "samples" / "LICENSES" / "GPL-2.0.txt").read_text()[:3000],
        (ROOT / "kopub" / "files.py").read_text(),
        "ㅇ사업 개요\nㅁ 추진 배경: 국가 균형 발전\nㆍ예산 · 집행\nㄱ. 총괄표\nㄴ. 세부\nㅇ기간: 2021. 1. ~ 2023.",
        "\n".join(
            f"{year}\t{year * 7919 % 99991:,}\t-\t0\t{year * 31 % 97}.{year % 10}%" for year in range(1960, 2024)
        ),
        "차례\n" + "\n".join(f"{n}.{n % 4} 가나다라 {'. ' * 30}{n + 3}" for n in range(1, 30)),
        "\n".join(f"{year}년 {q}분기 매출액\t{year * q * 37:,}원" for year in range(2010, 2024) for q in range(1, 5)),
        "大韓民國은 民主共和國이다. 大韓民國의 主權은 國民에게 있고, 모든 權力은 國民으로부터 나온다.",
        "CHAPTER ONE\nTHE MINISTRY OF LAND, INFRASTRUCTURE AND TRANSPORT\nANNUAL REPORT\n" * 2,
    ],
    ids=[
        "empty",
        "blank",
        "title",
        "English",
        "code",
        "bullets",
        "numbers",
        "contents",
        "quarters",
        "hanja",
        "capitals",
    ],
)
def test_what_is_printed_like_this_is_not_doubted(text: str):
    assert total(doubts(text)) < DOUBTFUL


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_to_a_whole_text_is_found(damage: str):
    found = doubts(DAMAGE[damage](PROSE, random.Random(0)))
    assert total(found) >= 0.9
    assert all(0 < doubt.weight <= 1 and doubt.says for doubt in found)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("데비안 " * 20 + "\ufffd" * 5, "mojibake"),
        ("한글 문서 " * 10 + "ㅎㅏㄴㄱㅡㄹ ㅁㅜㄴㅅㅓ", "jamo"),
        ("한글 문서 " * 10 + "\u1112\u1100\u1101\u1102\u1103", "jamo"),
        ("한글 문서입니다. " * 3 + "これはにほんごのぶんしょうです", "script"),
    ],
)
def test_a_part_is_enough(text: str, kind: str):
    assert kind in kinds(text)


def test_korean_whose_sentences_lack_their_marks_is_doubted():
    """Blurred print loses its smallest marks first, while its letters may still look like words."""
    said = (
        "설치 프로그램을 시작합니다",
        "언어를 선택하십시오",
        "디스크를 나눕니다",
        "다시 시작하세요",
        "이것으로 끝납니다",
    )
    one_line = "".join(f"{sentence} " for sentence in said)
    assert kinds(one_line + "끝") == {"marks"}
    assert kinds(one_line.replace(" ", "  ") + "끝") == {"marks"}
    assert "of the sentences end without a mark" in doubts(one_line + "끝")[0].says
    # The lines of a slide and the cells of a table may end without one.
    for ends in (". ", ".\n", "\n", "\t", "; ", "”고 합니다. "):
        assert kinds("".join(sentence + ends for sentence in said)) == set(), ends
    assert kinds("".join(f"{sentence} {at}\t서울\n" for at, sentence in enumerate(said))) == set()
    # Missing marks are no matter of style where commas have become full stops, too.
    lines = "\n".join(said)
    assert kinds(f"{lines}\n사과. 배. 감. 귤. 밤. 대추") == {"marks"}
    assert kinds(f"{lines}\n사과, 배, 감, 귤, 밤, 대추") == set()
    assert kinds(f"{'. '.join(said)}.\n사과. 배. 감. 귤. 밤. 대추") == set()


def test_what_is_there_twice_is_counted_to_the_character():
    text = "".join(random.Random(3).choices(string.ascii_lowercase, k=700))
    again = [doubt.says for doubt in doubts(text + text[100:400]) if doubt.kind == "repeated"]
    # 261 stretches of 40 characters, of 1,000 characters.
    assert again == ["26% of the text repeats earlier text, by a reading loop or in print"]
    assert not any(doubt.kind == "repeated" for doubt in doubts(text + text[100:139]))


def test_the_order_and_the_sum_of_doubts():
    found = doubts(DAMAGE["bytes lost"](PROSE, random.Random(0)) + "\n" + "ㅎㅏㄴㄱㅡㄹ" * 3)
    weights = [doubt.weight for doubt in found]
    assert weights == sorted(weights, reverse=True)
    assert max(weights) <= total(found) <= 1
    assert total([]) == 0


def test_decomposed_hangul_is_hangul():
    import unicodedata

    assert not doubts(unicodedata.normalize("NFD", PROSE))


FULL = JudgedRegion("text", 200_000, 600)


@pytest.mark.parametrize(
    ("boxes", "wrong"),
    [
        ([FULL], False),
        ([FULL, JudgedRegion("text", 200_000, 40)], True),
        ([FULL, JudgedRegion("text", 20_000, 1)], False),
        ([FULL, JudgedRegion("table", 200_000, 60)], False),
        ([FULL, JudgedRegion("table", 200_000, 0)], True),
        ([FULL, JudgedRegion("doc_title", 90_000, 12)], False),
        ([JudgedRegion("paragraph_title", 940_000, 35)], True),
        ([JudgedRegion("text", 500_000, 180)], False),
        ([JudgedRegion("text", 500_000, 20)], True),
        ([JudgedRegion("text", 500_000, 0)], True),
        ([JudgedRegion("text", 200_000, 600, cut=True)], True),
        ([], False),
    ],
)
def test_too_little_text_for_its_boxes(boxes: list[JudgedRegion], wrong: bool):
    assert (kinds("글", *boxes) == {"truncated"}) is wrong


@pytest.mark.parametrize(
    ("text", "boxes", "kind"),
    [
        ("쪽", [JudgedRegion("image", 970_000, 0, picture=True)], "picture"),
        ("쪽", [FULL, JudgedRegion("image", 300_000, 0, picture=True)], None),
        ("", [JudgedRegion("text", 9_000, 0)], "truncated"),
        ("", [JudgedRegion("image", 90_000, 0, picture=True)], "truncated"),
        (". . · . " * 200, [], "signs"),
    ],
)
def test_ink_of_which_nothing_was_read_is_doubtful(text: str, boxes: list[JudgedRegion], kind: str | None):
    assert kind in kinds(text, *boxes) if kind else not kinds(text, *boxes)


def test_a_reading_that_no_other_agrees_with_is_doubtful():
    assert kinds("글", FULL, JudgedRegion("table", 200_000, 600, unsure=True)) == {"unsure"}
    read = {**region(0, PROSE[:300]), "reason": "the digits 000000000000… multiply, and no other reading agrees"}
    assert total(doubts(text_of([read]), boxes_of([read]))) >= DOUBTFUL
    assert not boxes_of([{**read, "reason": None}])[0].unsure


def region(index: int, content: str, label: str = "text", finish_reason: str = "stop") -> dict[str, Any]:
    box = [100, 200 * index, 900, 200 * index + 180]
    return {
        "index": index,
        "native_label": label,
        "content": content,
        "bbox_2d": box,
        "finish_reason": finish_reason,
        "state": "ok",
        "reason": None,
        "attempts": 1,
        "seconds": 0.0,
        "scale": None,
        "origin": "recognizer",
    }


@pytest.mark.parametrize("damage", ["nothing read", "largest region empty", "answer ended for its length"])
def test_damage_to_regions_is_found(damage: str):
    regions = [region(0, PROSE[:300]), region(1, PROSE[300:700]), region(2, "", "image", "skipped")]
    assert total(doubts(text_of(regions), boxes_of(regions))) < DOUBTFUL
    bad = REGION_DAMAGE[damage](regions)
    assert total(doubts(text_of(bad), boxes_of(bad))) >= DOUBTFUL


def test_doubtful_pages_of_a_table_worst_first():
    rows = [("a", 0.6, ["x"]), ("b", 0.1, ["y"]), ("c", 0.9, ["z", "x"]), ("d", None, None)]
    table = pa.table({"page_id": [r[0] for r in rows], "doubt": [r[1] for r in rows], "doubts": [r[2] for r in rows]})
    assert [(page.page_id, page.doubts) for page in doubtful(table)] == [("c", ("z", "x")), ("a", ("x",))]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    chance = random.Random(0)
    texts = {
        "a_1": PROSE,
        "a_2": DAMAGE["UTF-8 read as CP949"](PROSE, chance),
        "b_1": DAMAGE["loop"](PROSE, chance),
        "b_2": "",
    }
    platform = Platform.of(tmp_path_factory.mktemp("quality"), [pages("a_1", "a_2"), pages("b_1", "b_2")], [])
    platform.engines = {"embedding": HashedEmbedder(), "recognition": Typist(texts=texts)}
    return platform


@pytest.fixture(scope="module")
def result(platform: Platform) -> dg.ExecuteInProcessResult:
    result = platform.run("raw_pages,layout_regions,ocr_results,parsed_texts", last="shard_01")
    assert result.success
    return result


def test_a_doubt_is_told_and_changes_no_state(platform: Platform, result: dg.ExecuteInProcessResult):
    rows = {**platform.rows("parsed_texts"), **platform.rows("parsed_texts", "shard_01")}
    assert {page: row["state"] for page, row in rows.items()} == {
        "a_1": State.OK,
        "a_2": State.OK,
        "b_1": State.OK,
        "b_2": State.BLANK,
    }
    assert (rows["a_1"]["doubt"], rows["a_1"]["doubts"]) == (0, [])
    assert rows["a_2"]["doubt"] == 1
    assert any("syllables are in no Korean word" in says for says in rows["a_2"]["doubts"])
    assert rows["b_2"]["doubts"] == ["hardly any text was read from 100% of the page (1 region)"]

    check = next(e for e in result.get_asset_check_evaluations() if e.check_name == TEXTS_LOOK_RIGHT.name)
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "shard_00: 1 of 2 pages look wrong: a_2: " in (check.description or "")

    shown = result.asset_materializations_for_node("parsed_texts")
    metadata = next(event.metadata for event in shown if event.partition == "shard_01")
    assert metadata["doubtful_share"].value == 1.0
    table = metadata["doubtful_pages"]
    assert isinstance(table, dg.TableMetadataValue)
    assert {record.data["page"] for record in table.records} == {"b_1", "b_2"}


def test_an_upgrade_of_the_boxes_doubts_again_and_embeds_nothing(platform: Platform, result: object):
    """The fingerprint of a row covers everything that its doubts depend on."""
    before = platform.rows("parsed_texts")["a_1"]["fingerprint"]
    table = platform.store.read("ocr_results", "shard_00")
    regions = table["regions"].to_pylist()
    regions[0][0]["finish_reason"] = "length"
    at = table.schema.get_field_index("regions")
    changed = table.set_column(at, table.schema.field(at), pa.array(regions, table.schema.field(at).type))
    platform.store.write("ocr_results", "shard_00", changed, platform.store.metadata("ocr_results", "shard_00"))
    assert platform.run("parsed_texts").success
    row = platform.rows("parsed_texts")["a_1"]
    assert row["fingerprint"] != before
    assert row["doubts"] == ["the reading was cut off (1 region)"]
    platform.store.write("ocr_results", "shard_00", table, platform.store.metadata("ocr_results", "shard_00"))
    assert platform.run("parsed_texts").success


@pytest.mark.services
def test_the_command_lists_them(platform: Platform, result: object):
    listed = run(platform.home, "kopub", "doubts", "--json")
    assert listed.returncode == 0, listed.stderr
    found = [json.loads(line) for line in listed.stdout.splitlines()]
    assert {page["page_id"] for page in found} == {"a_2", "b_1", "b_2"}
    assert [page["doubt"] for page in found] == sorted((page["doubt"] for page in found), reverse=True)
    shown = run(platform.home, "kopub", "doubts", "--top", "1")
    assert shown.stdout.splitlines()[-1] == "3 of 4 texts look wrong (75.0%); --top 3 lists them all"
    assert len(shown.stdout.splitlines()) == 2


@pytest.mark.services
def test_the_command_before_anything_was_made(tmp_path: Path):
    shown = run(tmp_path, "kopub", "doubts")
    assert (shown.returncode, shown.stdout) == (0, "0 of 0 texts look wrong\n")
