"""Regions that a corpus names are taken as they are, or refused in one line."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kopub.config.settings import Settings
from kopub.errors import EngineError
from kopub.layout.ground_truth import TYPE, GroundTruthLayout
from kopub.pages.indexing import index
from kopub.pages.page import Page
from tests.support.sources.corpora import page_image, pages, write_corpus

WHOLE = {"label": "table", "task": "table", "bbox": None}


def _home(folder: Path, regions: list[Any], parquet: bool = False) -> Path:
    """Return a home with an indexed corpus of pages p_0, p_1, ... with these regions."""
    images = pa.array([{"bytes": page_image(), "path": None} for _ in regions])
    ids = pa.array([f"p_{at}" for at in range(len(regions))])
    table = pa.table({"id": ids, "image": images, "regions": pa.array(regions, TYPE)})
    (folder / "pages").mkdir(parents=True)
    if parquet:
        pq.write_table(table, folder / "pages" / "pages.parquet")
    else:
        with pa.ipc.new_stream(str(folder / "pages" / "pages.arrow"), table.schema) as writer:
            writer.write_table(table)
    index(str(folder / "pages"), folder)
    return folder


@pytest.mark.parametrize("parquet", [False, True])
def test_the_regions_of_the_corpus_are_passed_on(tmp_path: Path, parquet: bool):
    half = {"label": "text", "task": "text", "bbox": [0.0, 0.5, 1.0, 1.0]}
    layout = GroundTruthLayout(home=str(_home(tmp_path, [[WHOLE], [half, WHOLE]], parquet)))
    first, second = layout.detect([Page("p_0", page_image()), Page("p_1", page_image())])
    assert [(r.label, r.task, r.bbox) for r in first.regions] == [("table", "table", (0, 0, 160, 220))]
    assert [(r.index, r.label, r.bbox) for r in second.regions] == [
        (0, "text", (0, 110, 160, 220)),
        (1, "table", (0, 0, 160, 220)),
    ]


@pytest.mark.parametrize(
    ("regions", "reason"),
    [
        (None, "the corpus names no region of this page"),
        ([{"label": "blob", "task": "text", "bbox": None}], "'blob' is no label"),
        ([{"label": "text", "task": "sing", "bbox": None}], "'sing' is not a valid Task"),
        ([{"label": "text", "task": "text", "bbox": [0.5, 0, 0.5, 1]}], "is no box of shares"),
    ],
)
def test_a_page_whose_regions_cannot_be_used_failed(tmp_path: Path, regions: Any, reason: str):
    (found,) = GroundTruthLayout(home=str(_home(tmp_path, [regions]))).detect([Page("p_0", page_image())])
    assert found.state == "failed"
    assert reason in (found.reason or "")


def test_a_corpus_without_the_column_is_one_clear_error(tmp_path: Path):
    index(str(write_corpus(tmp_path / "source", [pages("p_0")])), tmp_path)
    layout = GroundTruthLayout(home=str(tmp_path))
    assert layout.weights() == {"regions": "missing"}
    with pytest.raises(EngineError, match=r"^layout.engine given: .*has no column regions") as told:
        list(layout.detect([Page("p_0", page_image())]))
    assert "\n" not in str(told.value)


def test_other_regions_are_another_recipe_and_another_folder_is_not(tmp_path: Path):
    one, moved = (GroundTruthLayout(home=str(_home(tmp_path / name, [[WHOLE]]))) for name in ("a", "b"))
    other = GroundTruthLayout(home=str(_home(tmp_path / "c", [[{**WHOLE, "bbox": [0, 0, 1, 0.5]}]])))
    assert one.recipe() == moved.recipe() != other.recipe()


def test_a_profile_chooses_it_and_the_home_is_filled_in(tmp_path: Path):
    profile = {"layout": {"engine": "given"}, "recognition": {"engine": "tesseract"}, "embedding": {"engine": "hashed"}}
    assert Settings.of(tmp_path, profile).layout.model_dump()["home"] == str(tmp_path)
