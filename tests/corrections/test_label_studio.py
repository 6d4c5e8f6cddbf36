"""Pages go to Label Studio as tasks, and what people change there comes back as corrections, once."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from kopub.cli.main import app
from kopub.corrections.log import Action, Correction, CorrectionLog
from kopub.documents.label_studio import add_annotations, annotated_pages
from kopub.errors import KopubError
from kopub.layout.regions import LABELS
from tests.corrections.test_corrections import Bands
from tests.doubles.engines import SlowReader
from tests.support.harness import Platform, Prepared
from tests.support.sources.corpora import pages

SHARDS = {"a_1": "shard_00", "a_2": "shard_00"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    home = tmp_path_factory.mktemp("annotated") / "home"
    platform = Platform(home, {"layout": Bands(), "recognition": SlowReader(diary=str(home / "recognition.diary"))})
    platform.reindex([pages("a_1", "a_2")])
    platform.make("raw_pages", "layout_regions", "ocr_results")
    return Prepared(platform)


@pytest.fixture
def platform(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> Platform:
    platform = prepared.renewed()
    monkeypatch.setenv("KOPUB_HOME", str(platform.home))
    return platform


def exported(out: Path) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["export", str(out), "--label-studio", "--page-images"])
    assert done.exit_code == 0, done.output
    (file,) = out.glob("*.label-studio.json")
    return json.loads(file.read_text("utf-8"))


def annotated(task: dict[str, Any]) -> dict[str, Any]:
    """Return a task as Label Studio exports it after a person submitted it."""
    made = deepcopy(task)
    result = [{**drawn, "origin": "prediction"} for drawn in made["predictions"][0]["result"]]
    annotation = {"id": 7, "completed_by": {"id": 1, "email": "kim@example.org"}, "was_cancelled": False}
    return {"id": 1, "data": made["data"], "annotations": [{**annotation, "result": result}], "predictions": []}


def results(task: dict[str, Any]) -> list[dict[str, Any]]:
    return task["annotations"][0]["result"]


def imported(folder: Path, *tasks: dict[str, Any]) -> tuple[int, str]:
    (folder / "annotated.json").write_text(json.dumps(tasks, ensure_ascii=False), "utf-8")
    done = CliRunner().invoke(app, ["corrections", "--label-studio", str(folder / "annotated.json")])
    return done.exit_code, done.output if isinstance(done.exception, SystemExit | None) else str(done.exception)


def drawn(shown: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Return the label, text and box of each region of a result, from top to bottom."""
    texts = {each["id"]: each["value"]["text"][0] for each in shown if each["type"] == "textarea"}
    boxes = [each for each in shown if each["type"] == "rectanglelabels"]
    return sorted(
        (
            *(round(each["value"][edge], 1) for edge in ("y", "x", "height", "width")),
            each["value"]["rectanglelabels"][0],
            texts[each["id"]],
        )
        for each in boxes
    )


def test_an_annotation_that_changes_nothing_is_no_correction(platform: Platform, tmp_path: Path) -> None:
    tasks = exported(tmp_path / "out")
    assert [task["data"]["page_id"] for task in tasks] == ["a_1", "a_2"]
    picture = tasks[0]["data"]["image"].removeprefix("/data/local-files/?d=")
    assert (tmp_path / picture).is_file()
    assert imported(tmp_path, *map(annotated, tasks))[1].startswith("0 corrections added from 2 annotated pages")
    assert not CorrectionLog(platform.store).by_page()


def change(task: dict[str, Any]) -> dict[str, Any]:
    """Rewrite a title, make a text a footnote, draw the table anew, and add a text at the foot of the page."""
    title, written, text, _, table, cells = (deepcopy(each) for each in results(task))
    written["value"]["text"] = ["고쳐 쓴 제목"]
    text["value"]["rectanglelabels"] = ["footnote"]
    table["value"] |= {"height": table["value"]["height"] - 5, "rectanglelabels": ["table"]}
    cells["value"]["text"] = ["<table><tr><td>△1</td></tr></table>"]
    new = {**deepcopy(title), "id": "Xy12"}
    new["value"] |= {"y": 80.0, "height": 10.0, "rectanglelabels": ["text"]}
    said = {**deepcopy(written), "id": "Xy12"}
    said["value"]["text"] = ["쪽 끝"]
    task["annotations"][0]["result"] = [title, written, text, results(task)[3], table, cells, new, said]
    return task


def test_what_a_person_changed_comes_back_as_it_was_drawn_and_only_once(platform: Platform, tmp_path: Path) -> None:
    tasks = exported(tmp_path / "out")
    task = change(annotated(tasks[0]))
    code, said = imported(tmp_path, task)
    assert (code, said) == (0, "5 corrections added from 1 annotated page; `kopub run` uses them\n")
    again = exported(tmp_path / "out")
    assert drawn(again[0]["predictions"][0]["result"]) == drawn(results(task))
    assert again[1]["predictions"] == tasks[1]["predictions"]
    assert {each.author for each in CorrectionLog(platform.store).page("a_1").every} == {"kim@example.org"}
    assert imported(tmp_path, task)[1].startswith("0 corrections added")
    assert imported(tmp_path, annotated(again[0]))[1].startswith("0 corrections added")


def test_an_import_that_was_killed_goes_on(platform: Platform, tmp_path: Path) -> None:
    task = change(annotated(exported(tmp_path / "out")[0]))
    (tmp_path / "annotated.json").write_text(json.dumps([task]), "utf-8")
    log = CorrectionLog(platform.store)
    (page,) = annotated_pages(tmp_path / "annotated.json", SHARDS, "Kim")
    for change_made in page.changes[:2]:
        log.add(change_made)
    assert add_annotations(log, page) == 3
    assert [each.id for each in log.page("a_1").every] == [each.id for each in page.changes]


def test_a_page_that_others_corrected_meanwhile_is_left_to_them(platform: Platform, tmp_path: Path) -> None:
    tasks = [annotated(task) for task in exported(tmp_path / "out")]
    for task in tasks:
        results(task)[1]["value"]["text"] = ["제목"]
    log = CorrectionLog(platform.store)
    region = tasks[0]["data"]["regions"][0]
    box, on_grid = tuple(region["bbox"]), tuple(region["bbox_2d"])
    theirs = log.add(
        Correction("a_1", "shard_00", Action.TEXT, "Lee", box, on_grid, "doc_title", "text", after="다른 제목")
    )
    code, said = imported(tmp_path, *tasks)
    assert code == 1
    assert "a_1 was corrected since its task was exported: export it again\n" in said
    assert "1 correction added from 2 annotated pages" in said
    assert log.page("a_1").every == (theirs,)
    assert [each.after for each in log.page("a_2").every] == ["제목"]


def set_value(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda task: results(task)[0]["value"].__setitem__(name, value)


def struck(task: dict[str, Any]) -> dict[str, Any]:
    """Return a region as the task had it, after a person removed every rectangle."""
    results(task).clear()
    return task["data"]["regions"][0]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda task: task.pop("annotations"), "task 1 is not one of `kopub export --label-studio`"),
        (lambda task: task["data"].pop("regions"), "task 1 is not one of"),
        (lambda task: results(task)[0]["value"].pop("rectanglelabels"), "or lacks its label or box"),
        (set_value("x", float("nan")), "task 1 is not one of"),
        (set_value("y", "12"), "task 1 is not one of"),
        (set_value("rotation", 12.5), "a rectangle is rotated: draw it upright"),
        (set_value("rectanglelabels", ["Person"]), "'Person' is no label"),
        (set_value("rectanglelabels", ["image"]), "a person cannot make a region a picture"),
        (set_value("x", 150.0), "the box has no width, or leaves the page"),
        (lambda task: task["data"].update(page_id="b_9"), "there is no page 'b_9' here"),
        (lambda task: struck(task)["bbox"].__setitem__(0, ""), "task 1 is not one of"),
        (lambda task: struck(task).update(text=None), "task 1 is not one of"),
        (lambda task: struck(task).update(kind=["text"]), "task 1 is not one of"),
        (lambda task: struck(task)["bbox"].__setitem__(0, float("nan")), "the box is not four places on a page"),
        (lambda task: task["data"].update(width=1e40), "the box is not four places on a page"),
        (lambda task: task["annotations"].append(task["annotations"][0]), "a_1 has 2 annotations: delete all but one"),
    ],
)
def test_a_wrong_task_is_one_line_and_nothing_is_added(
    platform: Platform, tmp_path: Path, spoil: Callable[[dict[str, Any]], object], says: str
) -> None:
    task, sound = (annotated(task) for task in exported(tmp_path / "out"))
    results(sound)[1]["value"]["text"] = ["제목"]
    spoil(task)
    code, said = imported(tmp_path, task, sound)
    assert code == 1
    assert says in said
    assert "\n" not in said.strip()
    assert not CorrectionLog(platform.store).by_page()


@pytest.mark.parametrize("content", [b"", b"{}", b"image,label\n", b"[" * 100_000, b"\xff\xfe", b"[3]", b'["task"]'])
def test_a_file_that_is_no_export_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tasks.json").write_bytes(content)
    with pytest.raises(KopubError, match=r"^\S+tasks\.json(: task 1 is not one of| is no JSON export of Label Studio)"):
        annotated_pages(tmp_path / "tasks.json", SHARDS, "Kim")


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(KopubError, match=r"none\.json cannot be read: No such file"):
        annotated_pages(tmp_path / "none.json", SHARDS, "Kim")


def test_a_cancelled_annotation_is_none(platform: Platform, tmp_path: Path) -> None:
    task = change(annotated(exported(tmp_path / "out")[0]))
    task["annotations"][0]["was_cancelled"] = True
    assert imported(tmp_path, task)[1].startswith("0 corrections added from 0 annotated pages")


def test_the_configuration_in_the_documents_fits_the_tasks(platform: Platform, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "corrections.md").read_text("utf-8")
    (block,) = re.findall(r"```xml\n(.*?)```", text, re.DOTALL)
    view = ElementTree.fromstring(block)
    assert {label.get("value") for label in view.iter("Label")} == set(LABELS)
    names = {tag.get("name"): tag.tag for tag in view.iter() if tag.get("name")}
    kinds = {
        each["from_name"]: {"rectanglelabels": "RectangleLabels", "textarea": "TextArea"}[each["type"]]
        for task in exported(tmp_path / "out")
        for each in task["predictions"][0]["result"]
    }
    assert names == kinds | {"image": "Image"}
