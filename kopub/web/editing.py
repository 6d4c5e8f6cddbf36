"""The correction of a page in the room: its forms and their values."""

import html
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import kopub
from kopub.corrections.corrected import CorrectedTables, correct_page, truth_of
from kopub.corrections.log import LONGEST, Action, CorrectedMeanwhile, Correction, CorrectionLog
from kopub.errors import KopubError
from kopub.layout.regions import DEFAULT_TASKS, LABELS, PICTURES, Task
from kopub.recognition.regions import KINDS
from kopub.web.elements import is_table
from kopub.web.own_pages import Editor, ForeignRequest
from kopub.web.requests import ViewRequest

if TYPE_CHECKING:
    from starlette.requests import Request

    from kopub.store.table_store import ShardStore

LARGEST = 10 * LONGEST
"""Most bytes of a form, in which a Korean letter takes nine."""
_MOST_CELLS = 400
"""Most cells of a table with a field for each; a larger table is edited as HTML."""
_GIVEN = sorted(set(LABELS) - PICTURES)
"""The labels that a person may give a region."""
_OPENED = re.compile(r"<t[dh]\b", re.IGNORECASE)
_CELL = re.compile(r"(<t[dh]\b[^>]*>)(.*?)(</t[dh]>)", re.DOTALL | re.IGNORECASE)
_CELL_NAME = re.compile(r"cell-\d{1,9}")
_TAG = re.compile(r"<[^>]*>")
_LINE_END = re.compile(r"<br\b[^>]*>", re.IGNORECASE)


async def sent_form(request: "Request") -> dict[str, str]:
    """Return the first field of each name in a form. Raises `ForeignRequest`."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise ForeignRequest("a correction must be sent as a form")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise ForeignRequest("a correction may have at most {size:,} bytes", LARGEST)
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, errors="replace", max_num_fields=2 * _MOST_CELLS)
    except ValueError:
        raise ForeignRequest("the form cannot be read") from None
    return dict(reversed(fields))


def correct(store: "ShardStore", page: kopub.Page, sent: Mapping[str, str]) -> Correction:
    """Save the correction of a page that a form sent, and return it.

    Raises `CorrectedMeanwhile`, and `KopubError` if it cannot be saved.
    """
    wanted = sent.get("do", "")
    if wanted not in list(Action):
        raise KopubError("{action!r} is not a kind of correction", wanted)
    action, log = Action(wanted), CorrectionLog(store)
    entry = Correction(page.id, page.shard, action, sent.get("author", "")[:200], reason=sent.get("reason", "")[:2000])
    match action:
        case Action.UNDO:
            change: dict[str, Any] = {"after": sent.get("of", "")}
        case Action.CHECKED:
            rows = CorrectedTables(store).pages(page.shard, {page.id}).get(page.id)
            if rows is None:
                raise KopubError("{page} has not been read yet", page=page.id)
            change = {"after": truth_of(correct_page(*rows, CorrectionLog(store).page(page.id).changes))}
        case Action.ADD:
            label, (width, height) = sent.get("label", ""), (page.width or 1000, page.height or 1000)
            try:
                box = tuple(int(sent.get(edge, "")) for edge in ("left", "top", "right", "bottom"))
                pixels = tuple(edge * size / 1000 for edge, size in zip(box, (width, height) * 2, strict=True))
            except (ValueError, OverflowError):
                raise KopubError("the box of a region is four whole numbers from 0 to 1000") from None
            kind = KINDS[DEFAULT_TASKS.get(label, Task.TEXT)]
            change = {
                "bbox": pixels,
                "bbox_2d": box,
                "label": label,
                "kind": kind,
                "after": _lines(sent.get("text", "")),
            }
        case _:
            # All others are of a region that the page has.
            region = _region(page, sent.get("box", ""))
            change = {
                "bbox": region.box,
                "bbox_2d": region.box_2d,
                "label": region.label,
                "kind": KINDS[Task(region.task)],
                "before": region.content or "",
            }
            match action:
                case Action.TEXT:
                    change["after"] = _lines(
                        _with_cells(region.content or "", sent) if "cell-0" in sent else sent.get("text", "")
                    )
                case Action.LABEL:
                    change |= {"before": region.label, "after": sent.get("label", "")}
                case Action.ORDER:
                    follows = sent.get("follows", "")
                    change |= {
                        "before": "",
                        "after": json.dumps(list(_region(page, follows).box_2d)) if follows else "",
                    }
    return log.add(replace(entry, **change), sent.get("seen", ""))


def _region(page: kopub.Page, box: str) -> kopub.Region:
    """Return the region that the form shows with this box and label."""
    for region in page.regions:
        if _place(region) == box:
            return region
    raise KopubError("{page} was read again since, and has no such region any more: load the page again", page=page.id)


def _place(region: kopub.Region) -> str:
    # A region that a person added may have the box of another one, with another label.
    return f"{','.join(map(str, region.box_2d))} {region.label}"


def _lines(text: str) -> str:
    """Return a text with Unix line ends, because browsers send those of Windows."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def cells(content: str) -> list[list[tuple[int, str]]]:
    """Return the cells of a table by row, each with its number.

    The result is empty if they cannot be edited singly: there are too many, or one has no end tag.
    """
    numbered: list[list[tuple[int, str]]] = []
    number = 0
    for row in re.split(r"<tr\b", content, flags=re.IGNORECASE):
        of_row: list[tuple[int, str]] = []
        for cell in _CELL.finditer(row):
            of_row.append((number, _said(cell[2])))
            number += 1
        if of_row:
            numbered.append(of_row)
    return numbered if number == len(_OPENED.findall(content)) <= _MOST_CELLS else []


def _said(cell: str) -> str:
    """Return a text without markup, in one line as browsers send it."""
    return " ".join(html.unescape(_TAG.sub("", _LINE_END.sub(" ", cell))).split())


def _with_cells(content: str, sent: Mapping[str, str]) -> str:
    """Return a table with the cells that were sent; unchanged cells keep their markup."""
    numbers = count()

    def changed(cell: re.Match[str]) -> str:
        text = sent.get(f"cell-{next(numbers)}")
        if text is None or text == _said(cell[2]):
            return cell[0]
        return f"{cell[1]}{html.escape(text, quote=False)}{cell[3]}"

    return _CELL.sub(changed, content)


def edit_view(editor: Editor, store: "ShardStore", page: kopub.Page, request: ViewRequest) -> dict[str, Any]:
    """Return the values that the view of the forms needs besides the page."""
    history = CorrectionLog(store).page(page.id)
    return {
        "place_of": _place,
        "cells_of": lambda region: cells(region.content) if is_table(region.content or "") else [],
        "labels": _GIVEN,
        "seen": history.seen,
        "form": editor.form,
        "author": editor.author,
        "asks_token": bool(editor.token),
        "checked": history.checked,
        "done": [shown_change(change, request, change in history.lasting) for change in reversed(history.every)],
        "conflict": None,
        "problem": "",
        "mine": "",
    }


def shown_change(change: Correction, request: ViewRequest, lasts: bool) -> dict[str, Any]:
    shows = change.action in (Action.TEXT, Action.LABEL, Action.ADD, Action.STRIKE)
    return {
        "id": change.id,
        "action": request.t.word("correction", change.action),
        "author": change.author,
        "at": f"{change.at:%Y-%m-%d %H:%M} UTC",
        "before": _said(change.before)[:300] if shows else "",
        "after": _said(change.after)[:300] if shows else "",
        "reason": change.reason,
        "lasts": lasts and change.action is not Action.UNDO,
    }


def refused_values(
    error: KopubError, store: "ShardStore", page: kopub.Page, sent: Mapping[str, str], request: ViewRequest
) -> dict[str, Any]:
    """Return the values of the view of the forms after a correction was refused."""
    values: dict[str, Any] = {"mine": ""}
    if sent.get("do") in ("text", "add"):
        # The text that was sent, or a table's cells, one a line.
        numbered: list[tuple[int, str]] = []
        for name, text in sent.items():
            if _CELL_NAME.fullmatch(name):
                numbered.append((int(name.removeprefix("cell-")), text))
        values["mine"] = sent.get("text") or "\n".join(text for _, text in sorted(numbered))
    if isinstance(error, CorrectedMeanwhile):
        last = CorrectionLog(store).page(page.id).every[-1]
        return values | {"conflict": shown_change(last, request, False)}
    return values | {"problem": str(error)}
