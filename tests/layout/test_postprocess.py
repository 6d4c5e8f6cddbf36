import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopub.errors import ConfigError
from kopub.layout.pp_doclayout.postprocess import BoxRules, Containment, Detections, make_rules, postprocess
from kopub.layout.regions import DEFAULT_TASKS, LABELS, Task, tasks_by_label
from tests.support.scalar_postprocess import ScalarSettings, scalar_postprocess

PAGE = (1000, 1400)
USUAL = ScalarSettings()
ID = {label: i for i, label in enumerate(LABELS)}


def rules(chosen: ScalarSettings = USUAL) -> BoxRules:
    return make_rules(
        threshold=chosen.threshold,
        thresholds=chosen.thresholds,
        nms_same=chosen.nms_same,
        nms_different=chosen.nms_different,
        containment=chosen.containment,
        unclip=chosen.unclip,
    )


def detect(
    *found: tuple[str, float, tuple[float, float, float, float]],
    chosen: ScalarSettings = USUAL,
    size: tuple[int, int] = PAGE,
    overlap: float | None = None,
) -> Detections:
    """Post-process boxes (label, score, x1 y1 x2 y2 in pixels) given in reading order."""
    scores = np.zeros((len(found), len(LABELS)), np.float32)
    boxes = np.zeros((len(found), 4), np.float32)
    for query, (label, score, (x1, y1, x2, y2)) in enumerate(found):
        scores[query, ID[label]] = score
        boxes[query] = (x1 + x2) / 2 / size[0], (y1 + y2) / 2 / size[1], (x2 - x1) / size[0], (y2 - y1) / size[1]
    return postprocess(
        scores, boxes, np.arange(len(found), dtype=np.float32), *size, rules(chosen)._replace(overlap=overlap)
    )


def kept(*found: tuple[str, float, tuple[float, float, float, float]], **options: object) -> list[int]:
    return detect(*found, **options).queries.tolist()  # type: ignore[arg-type]


@st.composite
def pages(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int], ScalarSettings]:
    """Draw raw outputs with many ties from coarse grids; a query may have two labels.

    Hypothesis chooses the settings and a seed; numpy draws the numbers, which is far quicker.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 40))
    steps = draw(st.sampled_from([4, 10, 1000]))
    labels = rng.choice(len(LABELS), draw(st.integers(1, 6)))
    scores = rng.uniform(0, 0.2, (n, len(LABELS)))
    for _ in range(draw(st.integers(1, 2))):
        scores[np.arange(n), rng.choice(labels, n)] = rng.integers(1, steps + 1, n) / (steps + 1)
    corners = rng.integers(-1, steps + 2, (n, 2)) / steps
    sizes = rng.integers(0, steps + 1, (n, 2)) / steps
    boxes = np.hstack([corners + sizes / 2, sizes])
    votes = rng.integers(0, draw(st.sampled_from([2, 300])), n)
    chosen = ScalarSettings(
        threshold=draw(st.sampled_from([0.1, 0.3, 0.5])),
        thresholds={LABELS[labels[0]]: draw(st.sampled_from([0.05, 0.4, 0.9]))},
        nms_same=draw(st.sampled_from([0.3, 0.6, 1.0])),
        nms_different=draw(st.sampled_from([0.5, 0.98])),
        containment={LABELS[label]: draw(st.sampled_from(list(Containment))) for label in labels},
        unclip={LABELS[labels[-1]]: (1.5, 0.5)},
    )
    size = draw(st.sampled_from([(1000, 1400), (1400, 1000), (1, 1), (37, 53)]))
    return scores.astype(np.float32), boxes.astype(np.float32), votes.astype(np.float32), size, chosen


@pytest.mark.slow
@settings(max_examples=1000)
@given(pages())
def test_vectorised_equals_scalar(
    page: tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int], ScalarSettings],
) -> None:
    scores, boxes, votes, size, chosen = page
    found = postprocess(scores, boxes, votes, *size, rules(chosen))
    expected = scalar_postprocess(scores.tolist(), boxes.tolist(), votes.tolist(), *size, chosen)
    assert [tuple(box) for box in found.boxes.tolist()] == [(b.x1, b.y1, b.x2, b.y2) for b in expected]
    assert found.labels.tolist() == [box.label for box in expected]
    assert found.scores.tolist() == [box.score for box in expected]
    assert found.queries.tolist() == [box.query for box in expected]


def test_more_pairs_than_queries_keeps_the_best() -> None:
    scores = np.full((3, len(LABELS)), 0.4, np.float32)
    scores[1, ID["text"]] = scores[2, ID["table"]] = scores[0, ID["seal"]] = 0.9
    boxes = np.array([[0.2, 0.2, 0.1, 0.1], [0.5, 0.5, 0.1, 0.1], [0.8, 0.8, 0.1, 0.1]], np.float32)
    found = postprocess(scores, boxes, np.array([2.0, 1.0, 0.0], np.float32), *PAGE, rules())
    assert [LABELS[label] for label in found.labels] == ["table", "text", "seal"]


def test_threshold_of_a_label_goes_before_the_general_one() -> None:
    chosen = ScalarSettings(thresholds={"text": 0.8, "seal": 0.1})
    boxes = [(0, 0, 100, 100), (200, 0, 300, 100), (400, 0, 500, 100)]
    assert kept(("text", 0.7, boxes[0]), ("seal", 0.2, boxes[1]), ("table", 0.3, boxes[2]), chosen=chosen) == [1, 2]


def test_overlap_of_one_label_keeps_the_higher_score() -> None:
    low, high = ("text", 0.5, (0, 0, 100, 100)), ("text", 0.9, (0, 10, 100, 110))
    assert kept(low, high) == [1]
    both = {"text": Containment.UNION, "table": Containment.UNION}
    assert kept(low, ("table", 0.9, (0, 10, 100, 110)), chosen=ScalarSettings(containment=both)) == [0, 1]


def test_iou_counts_pixels() -> None:
    # Two lines one pixel high: they share 61 of 141 pixels.
    shifted = ("text", 0.5, (40, 5, 140, 5)), ("text", 0.9, (0, 5, 100, 5))
    assert detect(*shifted, chosen=ScalarSettings(nms_same=0.43)).dropped["overlapping"] == 1
    assert detect(*shifted, chosen=ScalarSettings(nms_same=0.44)).dropped["overlapping"] == 0


BOTH_STAY = ScalarSettings(containment=dict.fromkeys(LABELS, Containment.UNION))


@pytest.mark.parametrize(
    ("first", "second", "stay"),
    [
        # 80 % of the smaller one is shared.
        (("text", (0, 0, 400, 400)), ("text", (300, 0, 425, 100)), [0]),
        (("text", (300, 0, 425, 100)), ("table", (0, 0, 400, 400)), [1]),
        # Equal boxes: the first in reading order stays.
        (("text", (0, 0, 100, 100)), ("content", (0, 20, 100, 120)), [0]),
        # 60 %: only a formula within a line goes, whichever is the smaller.
        (("text", (0, 0, 400, 400)), ("text", (340, 0, 440, 100)), [0, 1]),
        (("text", (0, 0, 400, 400)), ("inline_formula", (340, 0, 440, 100)), [0]),
        (("inline_formula", (0, 0, 400, 400)), ("text", (340, 0, 440, 100)), [1]),
        # A picture and what is printed in it.
        (("image", (0, 0, 400, 400)), ("text", (100, 100, 200, 200)), [0, 1]),
        (("table", (0, 0, 400, 400)), ("seal", (100, 100, 200, 200)), [0, 1]),
        (("seal", (0, 0, 400, 400)), ("seal", (100, 100, 200, 200)), [0]),
    ],
)
def test_of_boxes_that_share_their_area_the_smaller_goes(
    first: tuple[str, tuple[float, float, float, float]],
    second: tuple[str, tuple[float, float, float, float]],
    stay: list[int],
) -> None:
    found = [(label, 0.9, box) for label, box in (first, second)]
    assert kept(*found, chosen=BOTH_STAY, overlap=0.7) == stay
    assert kept(*found, chosen=BOTH_STAY) == [0, 1]
    assert detect(*found, chosen=BOTH_STAY, overlap=0.7).dropped["sharing"] == 2 - len(stay)


def test_page_sized_image_goes_unless_it_is_alone() -> None:
    page = ("image", 0.9, (0, 0, 1000, 1350))
    assert kept(page) == [0]
    assert kept(page, ("doc_title", 0.8, (0, 1360, 500, 1400))) == [1]
    landscape = ("image", 0.9, (0, 0, 1400, 850))
    assert kept(landscape, ("doc_title", 0.8, (0, 860, 500, 1000)), size=(1400, 1000)) == [1]


@pytest.mark.parametrize(
    ("mode", "left"), [(Containment.LARGE, [0]), (Containment.UNION, [0, 1]), (Containment.SMALL, [0, 1])]
)
def test_box_inside_another_follows_the_outer_label(mode: Containment, left: list[int]) -> None:
    outer, inner = ("table", 0.9, (0, 0, 500, 500)), ("text", 0.8, (100, 100, 200, 200))
    assert kept(outer, inner, chosen=ScalarSettings(containment={"table": mode, "text": Containment.UNION})) == left


def test_small_drops_the_box_around_it() -> None:
    outer, inner = ("table", 0.9, (0, 0, 500, 500)), ("reference", 0.8, (100, 100, 200, 200))
    small = {"reference": Containment.SMALL, "table": Containment.UNION}
    assert kept(outer, inner, chosen=ScalarSettings(containment=small)) == [1]


@pytest.mark.parametrize("label", ["image", "seal", "chart"])
def test_pictures_are_never_contained(label: str) -> None:
    assert kept(("table", 0.9, (0, 0, 500, 500)), (label, 0.8, (100, 100, 200, 200))) == [0, 1]


def test_unclip_grows_about_the_centre_and_boxes_are_clamped_unrounded() -> None:
    found = detect(
        ("text", 0.9, (100.25, 100, 300.75, 200)),
        ("table", 0.9, (900, 1300, 1200, 1500)),
        ("seal", 0.9, (-200, 10, -50, 60)),
        chosen=ScalarSettings(unclip={"text": (2.0, 1.0)}),
    )
    assert found.boxes[0] == pytest.approx([0, 100, 401, 200], abs=1e-3)
    assert found.boxes[1] == pytest.approx([900, 1300, 1000, 1400], abs=1e-3)
    assert len(found) == 2
    assert found.dropped["off_page"] == 1


def test_nothing_over_the_threshold() -> None:
    assert len(detect(("text", 0.2, (0, 0, 10, 10)))) == 0


def test_every_label_has_a_task_and_a_profile_may_change_it() -> None:
    assert set(DEFAULT_TASKS) == set(LABELS)
    changed = tasks_by_label({"header": "text"})
    assert changed["header"] is Task.TEXT
    assert {label for label in LABELS if changed[label] is not DEFAULT_TASKS[label]} == {"header"}


@pytest.mark.parametrize(("changes", "word"), [({"headline": "text"}, "headline"), ({"text": "read"}, "read")])
def test_unknown_label_or_task_is_named(changes: dict[str, str], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        tasks_by_label(changes)
