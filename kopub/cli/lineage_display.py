"""The origin of a page or vector, on a terminal and in pictures."""

import io
import json
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from PIL import Image
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column
from rich.text import Text

from kopub.cli.console import print_json, print_table, right, said, say, table_console, tell
from kopub.config.settings import load_settings
from kopub.errors import KopubError, visible
from kopub.files import replace_bytes
from kopub.pages.page import decode
from kopub.pages.upright import UprightTransform
from kopub.recognition.regions import pixel_box
from kopub.states import State, phrase
from kopub.tables.graph import GRAPH
from kopub.tables.lineage import chain, find, holds

if TYPE_CHECKING:
    from kopub.pages.corpus import Corpus
    from kopub.store.table_store import ShardStore

_VALUE = 2000
"""Most characters of a prompt or another parameter; `--json` has all of them."""
_CONTENT = 60
"""Most characters of a region's text in the table, enough to tell it from its neighbours."""


def show_lineage(row_id: str, as_json: bool, crop: Path | None, region: int | None) -> None:
    """Show what a row was made from, and write its pictures to `crop`, if given.

    `row_id` is an id or a row of one table; with `region`, only its picture is written. Raises `KopubError`, and
    `typer.Exit` if the image in the source is another.
    """
    settings = load_settings()
    shards, composed = settings.corpus.manifest.keys, unicodedata.normalize("NFC", row_id)
    try:
        asset, kind, row_id, shard = _parse_target(settings.store, row_id, shards)
    except KopubError:
        if composed == row_id:
            raise
        # macOS passes Korean names in single letters.
        asset, kind, row_id, shard = _parse_target(settings.store, composed, shards)
    shown = chain(settings.store, settings.corpus, kind, row_id, shard, asset)
    if as_json:
        print_json(shown)
    else:
        out = table_console()
        kind = said("page" if shown["kind"] == "page" else "query")
        say(out, f"{visible(shown['id'])}  {kind}, {shown['shard']}", "bold")
        if shown["source"]:
            _show_source(shown["source"], out)
        if shown["regions"]:
            _show_regions(shown["regions"], out)
        for step in shown["steps"]:
            _show_step(step, out)
        for table in shown["missing"]:
            out.print()
            say(out, phrase("The {asset} that this was made from is no longer kept.", table), "yellow")
    if crop is not None:
        for path in write_pictures(settings.corpus, shown, crop, region):
            tell(phrase("wrote {path}", path), err=as_json)
    if shown["source"] and not shown["source"]["unchanged"]:
        raise typer.Exit(1)


def _parse_target(store: "ShardStore", given: str, shards: list[str]) -> tuple[str | None, str, str, str]:
    """Return the asset, if named, and the kind, id and shard. Raises `KopubError`."""
    asset, _, rest = given.partition("/")
    if asset not in GRAPH.names:
        places = find(store, given, shards)
        if len(places) > 1:
            raise KopubError("a page and a query are called {id!r}: say raw_pages/{id} or query_embeddings/{id}", given)
        ((kind, shard),) = places.items()
        return None, kind, given, shard
    for kind, shard in find(store, rest, shards).items():
        if holds(store, asset, shard, kind):
            return asset, kind, rest, shard
    raise KopubError("{asset} has no row for {id!r}: see `kopub lineage {id}` for the tables that do", asset, rest)


def _show_source(source: dict[str, Any], out: Console) -> None:
    rows: dict[str, str] = {}
    if origin := source["origin"]:
        path = visible(origin["path"])
        rows["file"] = phrase("{file}, page {page}", path, origin["page"]) if origin["page"] else path
        rows["file sha256"] = str(origin["sha256"])
        if origin["dpi"]:
            rows["drawn"] = phrase("at {dpi} dpi by {renderer}", origin["dpi"], origin["renderer"])
    place = phrase("{file}, row {row}", source["file"], source["row"])
    rows |= {"kept in": place, "page sha256": str(source["sha256"])}
    if source["width"]:
        form = "{format}, {width} x {height} pixels, {bytes:,} bytes"
        rows["image"] = phrase(form, *(source[name] for name in ("format", "width", "height", "n_bytes")))
    if transform := UprightTransform.of_row(source["upright"]):
        rows["set upright"] = str(transform)
    rows |= {name: str(source[key]) for name, key in (("document", "doc_id"), ("licence", "license")) if source[key]}
    _show_facts(rows, out)
    if source["problem"]:
        say(out, phrase("THE SOURCE CANNOT BE READ: {reason}", source["problem"]), "bold red")
    elif not source["unchanged"]:
        form = "THE IMAGE IN THE SOURCE IS NOT THE ONE THAT WAS READ: its sha256 is {sha256} now"
        say(out, phrase(form, source["sha256_now"]), "bold red")
    else:
        say(out, "The source holds these bytes: hashed again just now.", "green")


def _show_regions(regions: list[dict[str, Any]], out: Console) -> None:
    rows: list[list[str | Text]] = []
    for region in regions:
        box = " ".join(f"{value:.0f}" for value in region["bbox"])
        score = "" if region["score"] is None else f"{region['score']:.2f}"
        ended = ": ".join(visible(said(part), _CONTENT) for part in (region["state"], region["reason"]) if part)
        text = visible(region["content"] or "", _CONTENT)
        style = {State.OK: "", State.BLANK: "", State.PARTIAL: "yellow"}.get(region["state"] or State.OK, "red")
        origin, label = (region["origin"] or "").replace("_", " "), visible(region["label"], _CONTENT)
        rows.append([str(region["index"]), label, score, box, origin, Text(ended, style), text])
    names = [Column(name) for name in ("box in pixels", "read by", "state")]
    columns = [*right("region"), Column("label"), *right("score"), *names, Column("text", overflow="fold")]
    out.print()
    print_table(out, columns, rows)


def _show_step(step: dict[str, Any], out: Console) -> None:
    ended = ": ".join(visible(said(part)) for part in (step["state"], step["reason"]) if part)
    say(out, Text.assemble("\n", (step["asset"], "bold"), f"  {ended}"))
    model = " at ".join(filter(None, (step["model"], step["revision"])))
    spent = phrase(", {seconds:.2f} GPU seconds", step["gpu_seconds"]) if step["gpu_seconds"] else ""
    of_run = phrase("{run} at {time}{spent}", step["run_id"], step["made_at"], spent)
    run = of_run if step["run_id"] else "not recorded"
    rows = {
        "row": step["fingerprint"],
        "recipe": step["recipe"],
        "engine": step["engine"],
        "self-test": step["self_test"],
        "model": model,
        **{name: _plain(value) for name, value in step["parameters"].items() if value not in ({}, [], None)},
        "versions": _plain(step["versions"]) if step["versions"] else None,
        "query": step.get("query"),
        "vector": step["vector"] and _plain(step["vector"]),
        "run": run,
    }
    _show_facts({name: value for name, value in rows.items() if value}, out)
    if step["replaced_since"]:
        say(out, "This table has been replaced since; this is the version that was kept.", "yellow")
    for parent in step["stale"]:
        say(out, phrase("Stale: {asset} has changed since this was made from it.", parent), "yellow")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items() if part not in ("", None))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _show_facts(rows: dict[str, str], out: Console) -> None:
    named = {said(name): value for name, value in rows.items()}
    wide = max(map(cell_len, named), default=0)
    for name, value in named.items():
        head = f"  {name}{' ' * (wide - cell_len(name))}  "
        say(out, Text.assemble((head, "dim"), visible(said(value), _VALUE)), indent=4)


def write_pictures(corpus: "Corpus", shown: dict[str, Any], target: Path, region: int | None) -> list[Path]:
    """Write the page and its regions as PNGs into a folder.

    `target` may be a file for a single picture. A page that was set upright is also written upright, and regions are
    cut out of that. With `region`, only that region is written. Raises `KopubError` if there is nothing to cut out.
    """
    source = shown["source"]
    if source is None or source["problem"]:
        problem = source["problem"] if source else "it is a query"
        raise KopubError("{id} has no page picture: {reason}", shown["id"], problem)
    with corpus.reader(shown["shard"]) as reader:
        data = bytes(reader.page(shown["id"], source["row"], source["sha256"]).data)
        upright = bytes(reader.page(shown["id"], source["row"], source["sha256"], source["upright"]).data)
    regions = {entry["index"]: entry for entry in shown["regions"]}
    if region is not None and region not in regions:
        raise KopubError("{id} has no region {region}; it has {regions}, from 0", shown["id"], region, len(regions))
    name = shown["id"].replace("/", "_")
    one = bool(target.suffix) and not target.is_dir()
    if one and region is None:
        named = Image.registered_extensions().get(target.suffix.lower(), source["format"])
        is_other = named != source["format"]
        replace_bytes(target, _encode(Image.fromarray(decode(data)), target) if is_other else data)
        return [target]
    pixels = decode(upright)
    height, width = pixels.shape[:2]
    pictures: dict[Path, bytes] = {}
    if region is None:
        pictures[target / f"{name}.{(source['format'] or 'bin').lower()}"] = data
        if source["upright"]:
            pictures[target / f"{name}_upright.png"] = upright
    for index in regions if region is None else [region]:
        x1, y1, x2, y2 = pixel_box(tuple(regions[index]["bbox"]), width, height)
        path = target if one else target / f"{name}_{index}.png"
        pictures[path] = _encode(Image.fromarray(pixels[y1:y2, x1:x2]), path)
    for path, content in pictures.items():
        replace_bytes(path, content)
    return list(pictures)


def _encode(image: Image.Image, path: Path) -> bytes:
    """Return a picture in the format of a file's suffix, else as PNG.

    Raises `KopubError` for a format that is only read, or holds no picture of this size.
    """
    file = io.BytesIO()
    try:
        image.save(file, Image.registered_extensions().get(path.suffix.lower(), "PNG"))
    except (KeyError, ValueError, OSError):
        raise KopubError(
            "{path} cannot be written: no {suffix} picture can be made of it; name a .png file", path, path.suffix
        ) from None
    return file.getvalue()
