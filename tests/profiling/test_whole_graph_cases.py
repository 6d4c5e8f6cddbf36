"""The cases of the benchmark of the whole graph, and the profile that each of them runs with."""

from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from benchmarks.whole_graph.cases import case_of
from benchmarks.whole_graph.grid_engines import GridLayout, MadeUpTexts, made_up_text
from benchmarks.whole_graph.setup import changed, write_plugin
from resources.config.profile_files import find_profile
from resources.config.settings import Settings


def test_a_case_has_its_own_shards_and_changes():
    assert (case_of("warm", 2).shards, case_of("shards8", 2).shards) == (2, 8)
    case = case_of("ocr+recognition.line_height=24+recognition.in_flight=512", 2)
    assert (case.base, case.name) == ("ocr", "ocr+recognition.line_height=24+recognition.in_flight=512")
    changes = {"recognition.server.gpus": [0], "recognition.line_height": 24, "recognition.in_flight": 512}
    assert case.changes == changes
    with pytest.raises(SystemExit, match="there is no case 'hot'"):
        case_of("hot", 2)


def test_a_case_names_the_stages_that_it_measures():
    assert case_of("layout", 2).stages == {"raw_pages", "layout_regions"}
    assert case_of("side_by_side", 2).stages == case_of("warm", 2).stages - {"raw_pages"}
    assert case_of("own", 2).stages == set()


def test_a_profile_with_random_weights_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plugin = write_plugin(tmp_path / "plugin")
    monkeypatch.syspath_prepend(str(plugin))
    folder = tmp_path / "weights"
    folder.mkdir()
    h200 = find_profile("h200").sections
    sections: list[str] = ["layout", "recognition", "embedding"]
    random = dict.fromkeys(sections, str(folder))
    profile = changed(h200, random, {"recognition.server.replicas": 4, "embedding.server.extra_flags+": ["--x"]})
    settings = Settings.of(tmp_path, profile)
    assert isinstance(settings.layout, GridLayout)
    assert isinstance(settings.recognition, MadeUpTexts)
    assert (settings.recognition.tries, settings.recognition.server.replicas) == (1, 4)
    assert "--load-format=dummy" in settings.recognition.server.extra_flags
    flags = settings.embedding.server.extra_flags  # type: ignore[attr-defined]
    assert flags[-2:] == ["--load-format=dummy", "--x"]
    assert h200 == find_profile("h200").sections


def test_the_engines_for_random_weights_are_those_of_a_package(tmp_path: Path):
    (package,) = write_plugin(tmp_path / "plugin").iterdir()
    points = {(point.group, point.name): point.load() for point in PathDistribution(package).entry_points}
    assert points == {("kopub.layout", "grid"): GridLayout, ("kopub.recognition", "made_up_texts"): MadeUpTexts}


def test_a_made_up_text_is_the_same_for_the_same_region():
    assert made_up_text("p 1", 290) == made_up_text("p 1", 290) != made_up_text("p 2", 290)
    assert 280 <= len(made_up_text("p 1", 290)) <= 330
