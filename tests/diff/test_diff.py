"""A shard before and after an upgrade: what moved, what was lost, the worst first."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from kopub.cli.main import app
from kopub.corrections.log import Action, Correction, CorrectionLog
from kopub.diff.compare import NUMBER, Damage, cosine_change, damage, iou, match
from kopub.diff.html import mark_differences
from kopub.embedding.base import Embedding
from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText
from kopub.states import State
from kopub.store.table_store import ShardStore
from tests.doubles.engines import UnitEmbedder
from tests.support.harness import Platform
from tests.support.sources.corpora import page_image, pages, query

Drawn = Sequence[tuple[str, Sequence[float], str]]
"""(label, box, text) of every region of a page."""
TABLES = "raw_pages,layout_regions,ocr_results,parsed_texts,corpus_text_embeddings,query_embeddings"


class DrawnLayout(LayoutDetector):
    """A layout of given regions, JSON by page id; a page without any is blank."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.drawn", {1: "a double"})
    drawn: str

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        told = json.loads(self.drawn)
        for page in pages:
            regions = [
                Region(index, label, Task.TEXT, 0.9, tuple(box))
                for index, (label, box, _) in enumerate(told[page.page_id])
            ]
            yield Layout(page.page_id, State.OK if regions else State.BLANK, None, tuple(regions))


class DrawnReader(Recognizer):
    """A recognizer that returns given texts, as JSON by page id."""

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.drawn", {1: "a double"})
    drawn: str

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        told = json.loads(self.drawn)
        for page, regions in pages:
            texts = tuple(RegionText(r.index, r.label, told[page.page_id][r.index][2]) for r in regions)
            yield PageReading(page.page_id, State.OK, None, texts)


class TurnedEmbedder(UnitEmbedder):
    """An embedder whose text vectors turn from the first axis by `turn` per character."""

    turn: float = 0.0

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        for text_id, text in texts:
            angle = self.turn * len(text)
            vector = np.array([np.cos(angle), np.sin(angle), *([0.0] * (self.dim - 2))], np.float32)
            yield Embedding(text_id, State.OK, vector)


def one(text: str) -> Drawn:
    return [("text", (10, 10, 150, 50), text)]


SAME = one("같은 글")


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform.of(tmp_path, [pages("a_1", "a_2")], [query("q1", "무엇인가?", "a_1")])


@pytest.fixture
def kopub(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs `kopub diff` on the platform's home."""
    monkeypatch.setenv("KOPUB_HOME", str(platform.home))
    monkeypatch.setenv("COLUMNS", "160")
    return lambda *words: CliRunner().invoke(app, ["diff", *words])


def make(
    platform: Platform,
    a_1: Drawn = SAME,
    a_2: Drawn = SAME,
    select: str = TABLES,
    turn: float = 0.0,
    dim: int = 4,
) -> None:
    told = json.dumps({"a_1": a_1, "a_2": a_2})
    platform.engines |= {
        "layout": DrawnLayout(drawn=told),
        "recognition": DrawnReader(drawn=told),
        "embedding": TurnedEmbedder(turn=turn, dim=dim),
    }
    platform.make(*select.split(","))


def told(kopub: Callable[..., Result], *words: str) -> dict[str, Any]:
    result = kopub(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_kind_of_change_is_found(platform: Platform, kopub: Callable[..., Result]):
    make(platform, a_1=[
        ("doc_title", (10, 10, 150, 30), "제목"),
        ("text", (10, 40, 150, 80), "합계 1,200 원"),
        ("text", (10, 90, 150, 130), "옮겨진 글"),
        ("table", (10, 140, 70, 180), "없어진 표"),
        ("text", (80, 140, 150, 180), "그대로"),
    ])  # fmt: skip
    make(platform, a_1=[
        ("paragraph_title", (10, 10, 150, 30), "제목"),
        ("text", (10, 40, 150, 80), "합계 1,300 원"),
        ("text", (10, 98, 150, 138), "옮겨진 글"),
        ("text", (80, 140, 150, 180), "그대로"),
        ("footer", (10, 200, 150, 215), "새 글"),
    ])  # fmt: skip
    found = told(kopub, "shard_00")
    assert (found["pages"], [page["page_id"] for page in found["changed"]]) == (2, ["a_1"])
    changes = {
        (*change["kinds"], (change["old"] or change["new"])["content"]): change["damage"]
        for change in found["changed"][0]["changes"]
    }
    assert set(changes) == {
        ("relabelled", "제목"),
        ("text", "합계 1,200 원"),
        ("moved", "옮겨진 글"),
        ("removed", "없어진 표"),
        ("added", "새 글"),
    }
    assert changes["text", "합계 1,200 원"] == {"score": 1 + NUMBER, "lost": 0, "changed": 1, "added": 0, "numbers": 1}
    assert changes["removed", "없어진 표"]["lost"] == 5
    assert found["changed"][0]["changes"][0]["kinds"] == ["text"]
    assert found["labels"]["table"] == {"old": 1, "new": 0}
    assert found["labels"]["text"] == {"old": 4, "new": 4}
    assert found["upgrades"][0]["asset"] == "layout_regions"
    assert any(line.startswith("layout.drawn ") for line in found["upgrades"][0]["differences"])

    shown = kopub("shard_00").stdout
    assert "1 of 2 pages differ" in shown
    assert "1 added, 1 removed, 1 moved, 1 relabelled, 1 with changed text" in shown


def test_a_region_cut_in_two_loses_no_text_of_its_page(platform: Platform, kopub: Callable[..., Result]):
    make(platform, a_1=[("text", (10, 10, 150, 110), "하나 둘")])
    make(platform, a_1=[("text", (10, 10, 150, 70), "하나"), ("text", (10, 70, 150, 110), "둘")])
    (page,) = told(kopub, "shard_00")["changed"]
    assert page["damage"]["score"] == 0
    assert page["regions"] == {"old": 1, "new": 2}


def test_a_page_whose_text_a_person_corrected_is_one_that_differs(
    platform: Platform, kopub: Callable[..., Result], tmp_path: Path
):
    make(platform, a_1=one("합계 1,200 원"))
    (region,) = platform.rows("ocr_results")["a_1"]["regions"]
    box, label = tuple(region["bbox_2d"]), region["label"]
    correction = Correction("a_1", "shard_00", Action.TEXT, "Kim", (10, 10, 150, 50), box, label, after="합계 1,300 원")
    CorrectionLog(platform.store).add(correction)
    make(platform, a_1=one("합계 1,200 원"))
    (page,) = told(kopub, "shard_00")["changed"]
    assert (page["page_id"], page["changes"]) == ("a_1", [])
    assert page["damage"] == {"score": 1 + NUMBER, "lost": 0, "changed": 1, "added": 0, "numbers": 1}
    assert "1 of 2 pages differs" in kopub("shard_00", "--html", str(tmp_path / "diff.html")).stdout
    assert "<del>2</del>00 원" in (tmp_path / "diff.html").read_text("utf-8")


def test_pages_that_ended_otherwise_come_first_then_the_most_damaged(
    tmp_path: Path, kopub: Callable[..., Result], platform: Platform
):
    box = (10, 10, 150, 50)
    make(platform, a_1=[("text", box, "많은 것이 바뀐 긴 글")], a_2=[("text", box, "짧다")])
    make(platform, a_1=[("text", box, "다른 내용이 되어 버린 글")], a_2=[])
    found = told(kopub, "shard_00")["changed"]
    assert [page["page_id"] for page in found] == ["a_2", "a_1"]
    assert found[0]["states"]["layout_regions"] == {"old": "ok", "new": "blank"}
    assert found[0]["damage"]["score"] < found[1]["damage"]["score"]
    assert "layout_regions: ok → blank" in kopub("shard_00").stdout


def test_a_table_without_any_vector_is_told():
    nothing = pa.table({"page_id": ["a_1"], "vector": pa.array([None], pa.list_(pa.float16(), 4))})
    assert cosine_change(nothing, nothing, "page_id", 5).problem == "no row has a vector in both"


def test_vectors_that_turned_are_listed_the_farthest_first(platform: Platform, kopub: Callable[..., Result]):
    a_1, a_2 = one("긴 글이다"), one("글")
    make(platform, a_1, a_2)
    make(platform, a_1, a_2, turn=0.2)
    vectors = told(kopub, "shard_00")["vectors"]["corpus_text_embeddings"]
    assert vectors["compared"] == 2
    assert [row_id for _, row_id in vectors["lowest"]] == ["a_1", "a_2"]
    assert vectors["lowest"][0][0] == pytest.approx(np.cos(0.2 * 5), abs=1e-3)
    make(platform, a_1, a_2, dim=8)
    vectors = told(kopub, "shard_00")["vectors"]["corpus_text_embeddings"]
    assert vectors["problem"] == "vectors of 4 and of 8 dimensions cannot be compared"


def test_a_line_is_one_line_on_a_narrow_terminal(
    platform: Platform, kopub: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
):
    make(platform)
    make(platform, dim=8)
    monkeypatch.setenv("COLUMNS", "40")
    assert "corpus_text_embeddings  vectors of 4 and of 8 dimensions cannot be compared\n" in kopub("shard_00").stdout


def test_versions_are_named_by_any_tables_recipe_and_bring_what_belongs_to_it(
    platform: Platform, kopub: Callable[..., Result]
):
    make(platform, a_1=one("처음 글"))
    first = platform.store.metadata("ocr_results", "shard_00")["recipe"]
    make(platform, a_1=one("다음 글"))
    make(platform, a_1=one("다음 글"), turn=0.2)

    previous = told(kopub, "shard_00")
    assert [upgrade["asset"] for upgrade in previous["upgrades"]] == ["corpus_text_embeddings", "query_embeddings"]
    assert previous["changed"] == []

    of_first = told(kopub, f"shard_00@{first[:8]}")
    assert of_first["changed"][0]["changes"][0]["old"]["content"] == "처음 글"
    assert "corpus_text_embeddings" in of_first["vectors"]
    assert told(kopub, "shard_00@current", "shard_00")["changed"] == []
    backwards = told(kopub, "shard_00@current", f"shard_00@{first}")
    assert backwards["changed"][0]["changes"][0]["new"]["content"] == "처음 글"


def test_while_an_upgrade_is_under_way_what_is_left_of_the_old_tables_belongs_to_them(
    platform: Platform, kopub: Callable[..., Result]
):
    make(platform, a_1=one("처음 글"))
    make(platform, a_1=one("다음 글"), select="ocr_results")
    found = told(kopub, "shard_00")
    assert [upgrade["asset"] for upgrade in found["upgrades"]] == ["ocr_results"]
    assert found["changed"][0]["changes"][0]["old"]["content"] == "처음 글"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("shard_00",), "shard_00 has no older version: nothing was replaced, or store.keep_versions is 0"),
        (("shard_00@beef",), "shard_00 has no version 'beef': say current, previous or one that is kept: none"),
        (("shard_00", "shard_01"), "shard_00 and shard_01 are different shards: name two versions of one shard"),
        (("shard_07",), "there is no shard shard_07: `kopub shards` lists them all"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    platform: Platform, kopub: Callable[..., Result], words: tuple[str, ...], line: str
):
    make(platform)
    result = kopub(*words)
    assert result.exit_code == 1
    assert str(result.exception) == line


def test_a_shard_that_was_never_made_is_one_line(kopub: Callable[..., Result]):
    assert str(kopub("shard_00").exception) == "shard_00 has not been made yet: `kopub run` makes it"


def test_without_kept_versions_there_is_nothing_to_compare(platform: Platform, kopub: Callable[..., Result]):
    platform.engines["store"] = ShardStore(url=platform.store.url, keep_versions=0)
    make(platform, a_1=one("처음 글"))
    make(platform, a_1=one("다음 글"))
    assert "has no older version" in str(kopub("shard_00").exception)


def test_readings_of_an_older_layout_are_not_compared(platform: Platform, kopub: Callable[..., Result]):
    make(platform, a_1=[("text", (10, 10, 150, 50), "하나"), ("text", (10, 60, 150, 90), "둘")])
    make(platform, a_1=[("text", (10, 60, 150, 90), "둘")], select="layout_regions")
    result = kopub("shard_00")
    assert result.exit_code == 1
    assert str(result.exception) == (
        "ocr_results of a_1 read another region 0 than layout_regions has: materialize ocr_results again"
    )


def test_a_page_that_the_source_no_longer_holds_has_no_picture(
    platform: Platform, kopub: Callable[..., Result], tmp_path: Path
):
    make(platform, a_1=one("처음 글"))
    make(platform, a_1=one("다음 글"))
    file = tmp_path / "diff.html"
    assert kopub("shard_00", "--html", str(file)).exit_code == 0
    assert "<image " in file.read_text("utf-8")
    # The row of a_1 now holds another page.
    platform.reindex([[("a_2", page_image(1)), ("a_1", page_image(0))]], [query("q1", "무엇인가?", "a_1")])
    assert kopub("shard_00", "--html", str(file)).exit_code == 0
    assert "<image " not in file.read_text("utf-8")


class Outline(HTMLParser):
    """A parser that collects the elements of a page and what they load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href")]


def test_the_page_stands_alone_and_shows_both_layouts(platform: Platform, kopub: Callable[..., Result], tmp_path: Path):
    make(platform, a_1=one("처음 글"), a_2=one("짧다"))
    make(platform, a_1=[*one("전혀 다른 글"), ("table", (10, 100, 90, 150), "")], a_2=one("짧네"))
    file = tmp_path / "diff.html"
    assert kopub("shard_00", "--html", str(file), "--pages", "1").exit_code == 0
    page = file.read_text("utf-8")
    outline = Outline()
    outline.feed(page)
    assert outline.tags.count("image") == 1
    assert outline.tags.count("figure") == 2
    assert outline.tags.count("rect") == 1 + 2
    assert all(link.startswith(("data:image/", "#")) for link in outline.links)
    assert '<g class="added">' in page
    assert "<del>처음</del>" in page
    assert not {"script", "link", "iframe", "img"} & set(outline.tags)


@pytest.mark.slow
def test_hostile_text_is_shown_as_text_and_the_page_stays_small(
    platform: Platform, kopub: Callable[..., Result], tmp_path: Path
):
    make(platform, a_1=one("그대로"))
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\x00\x1b[31m\u202e]]>{{ 7 * 7 }}'
    make(platform, a_1=[("text", (10, 10, 150, 50), evil + "가" * 250_000)])
    file = tmp_path / "diff.html"
    result = kopub("shard_00", "--html", str(file))
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    page = file.read_text("utf-8")
    assert len(page) < 200_000
    outline = Outline()
    outline.feed(page)
    assert not {"script", "img"} & set(outline.tags)
    assert "&lt;script&gt;" in page
    assert "{{ 7 * 7 }}" in page
    assert not [char for char in page if not char.isprintable() and char != "\n"]


BOX = st.tuples(*[st.floats(0, 1000)] * 4).map(
    lambda v: (min(v[0], v[2]), min(v[1], v[3]), max(v[0], v[2]), max(v[1], v[3]))
)


@given(st.lists(BOX, max_size=8), st.lists(BOX, max_size=8))
def test_a_box_is_matched_once_and_only_where_it_overlaps_by_half(old: list[Any], new: list[Any]):
    pairs = match(old, new)
    assert len({at for at, _, _ in pairs}) == len({to for _, to, _ in pairs}) == len(pairs)
    overlap = iou(old, new)
    assert all(value == overlap[at, to] >= 0.5 for at, to, value in pairs)
    assert ((overlap >= 0) & (overlap <= 1 + 1e-9)).all()


@given(st.lists(BOX, max_size=8, unique=True))
def test_a_layout_that_did_not_change_is_matched_whole(boxes: list[Any]):
    flat = [box for box in boxes if (box[2] - box[0]) * (box[3] - box[1]) > 1]
    assert all(value > 0.999 for _, _, value in match(flat, flat))
    assert len(match(flat, flat)) == len(flat)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("같다", "같다", Damage()),
        ("한 줄\n두 줄", " 한 줄 두  줄 ", Damage()),
        ("가나다", "가다", Damage(lost=1)),
        ("가나다", "가라다", Damage(changed=1)),
        ("가다", "가나다", Damage(added=1)),
        ("2024년 3월", "2024년 8월", Damage(changed=1, numbers=1)),
        ("1,200 1,200", "1,200", Damage(lost=6, numbers=1)),
        ("", "12", Damage(added=2, numbers=1)),
    ],
)
def test_damage_counts_characters_and_numbers(old: str, new: str, expected: Damage):
    assert damage(old, new) == expected


def test_the_damage_of_a_very_long_text_is_never_too_small():
    old = "가나다라마바사아자차" * 100_000
    assert damage(old, old[1:]).score >= 1
    assert damage(old, "") == Damage(lost=1_000_000)


@given(st.text(max_size=60), st.text(max_size=60))
def test_marks_leave_the_text_as_it_is(old: str, new: str):
    for side, other in zip(mark_differences(old, new), mark_differences(new, old), strict=True):
        assert all(text for text, _ in side)
        assert all(text.isprintable() for text, _ in [*side, *other])


def test_marks_begin_near_the_first_difference_and_are_whole_words():
    old, new = mark_differences("앞 " * 100 + "서울특별시 끝", "앞 " * 100 + "부산광역시 끝")
    assert old[0] == ("…", False)
    assert ("서울특별", True) in old
    assert ("부산광역", True) in new
