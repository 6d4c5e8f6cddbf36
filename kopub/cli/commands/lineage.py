"""`kopub lineage`: how a page or a vector came to be, and its pictures."""

import io
import json
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from PIL import Image
from rich.console import Console
from rich.table import Column
from rich.text import Text

from kopub.cli.console import print_json, print_table, right, say, table_console
from kopub.cli.options import local_path
from kopub.errors import ConfigError, KopubError, visible
from kopub.files import replace_bytes
from kopub.pages.page import decode
from kopub.pages.upright import PageTransform
from kopub.states import State

if TYPE_CHECKING:
    from kopub.pages.corpus import Corpus
    from kopub.store.table_store import ShardStore

_VALUE = 2000
"""Most characters of a prompt or another parameter; `--json` has all of them."""
_CONTENT = 60
"""Most characters of a region's text in the table, enough to tell it from its neighbours."""


def lineage(
    row_id: Annotated[
        str,
        typer.Argument(
            metavar="PAGE_OR_VECTOR_ID",
            help="A page or query id, or a row of one table, such as corpus_text_embeddings/PAGE_ID.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
    crop: Annotated[
        Path | None,
        typer.Option(
            parser=local_path,
            metavar="PATH",
            help="Folder for the pictures of the page and its regions, or a file for one of them.",
        ),
    ] = None,
    region: Annotated[int | None, typer.Option(help="With --crop: only this region, by its index.", min=0)] = None,
) -> None:
    """Show how a page or vector came to be: source bytes, boxes, models, prompts, runs.

    A page or query shows its rows as they are now. A row of one table, such as
    corpus_text_embeddings/PAGE_ID, shows exactly what that row was made from,
    even where those tables have been replaced since. The exit status is 1 if
    the image in the source is not the one that was read.
    """
    from kopub.config.settings import load_settings
    from kopub.tables.lineage import chain

    if region is not None and crop is None:
        raise ConfigError("--region needs --crop: add it")
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
        _show(shown, table_console())
    if crop is not None:
        for path in write_pictures(settings.corpus, shown, crop, region):
            typer.echo(f"wrote {path}", err=as_json)
    if shown["source"] and not shown["source"]["unchanged"]:
        raise typer.Exit(1)


def _parse_target(store: "ShardStore", given: str, shards: list[str]) -> tuple[str | None, str, str, str]:
    """Return the asset, if named, and the kind, id and shard. Raises `KopubError`."""
    from kopub.tables.graph import GRAPH
    from kopub.tables.lineage import find, holds

    asset, _, rest = given.partition("/")
    if asset not in GRAPH.names:
        places = find(store, given, shards)
        if len(places) > 1:
            raise KopubError(
                f"a page and a query are called {given!r}: say raw_pages/{given} or query_embeddings/{given}"
            )
        ((kind, shard),) = places.items()
        return None, kind, given, shard
    for kind, shard in find(store, rest, shards).items():
        if holds(store, asset, shard, kind):
            return asset, kind, rest, shard
    raise KopubError(f"{asset} has no row for {rest!r}: see `kopub lineage {rest}` for the tables that do")


def _show(shown: dict[str, Any], out: Console) -> None:
    say(out, f"{visible(shown['id'])}  {shown['kind']} of {shown['shard']}", "bold")
    if shown["source"]:
        _show_source(shown["source"], out)
    if shown["regions"]:
        _show_regions(shown["regions"], out)
    for step in shown["steps"]:
        _show_step(step, out)
    for asset in shown["missing"]:
        say(out, f"\nThe {asset} that this was made from is no longer kept.", "yellow")


def _show_source(source: dict[str, Any], out: Console) -> None:
    rows = _origin_rows(source["origin"]) if source["origin"] else {}
    rows |= {"kept in": f"{source['file']}, row {source['row']}", "page sha256": str(source["sha256"])}
    if source["width"]:
        rows["image"] = (
            f"{source['format']}, {source['width']} x {source['height']} pixels, {source['n_bytes']:,} bytes"
        )
    if transform := PageTransform.of_row(source["upright"]):
        rows["set upright"] = str(transform)
    rows |= {name: str(source[key]) for name, key in (("document", "doc_id"), ("licence", "license")) if source[key]}
    _show_facts(rows, out)
    if source["problem"]:
        say(out, f"THE SOURCE CANNOT BE READ: {visible(source['problem'])}", "bold red")
    elif not source["unchanged"]:
        line = f"THE IMAGE IN THE SOURCE IS NOT THE ONE THAT WAS READ: its sha256 is {source['sha256_now']} now"
        say(out, line, "bold red")
    else:
        say(out, "The source holds these bytes: hashed again just now.", "green")


def _origin_rows(origin: dict[str, Any]) -> dict[str, str]:
    """Return the rows on the original file that a page comes from."""
    page = f", page {origin['page']}" if origin["page"] else ""
    rows = {"file": f"{visible(origin['path'])}{page}", "file sha256": str(origin["sha256"])}
    return rows | ({"drawn": f"at {origin['dpi']} dpi by {origin['renderer']}"} if origin["dpi"] else {})


def _show_regions(regions: list[dict[str, Any]], out: Console) -> None:
    rows: list[list[str | Text]] = []
    for region in regions:
        box = " ".join(f"{value:.0f}" for value in region["bbox"])
        score = "" if region["score"] is None else f"{region['score']:.2f}"
        ended = ": ".join(visible(part, _CONTENT) for part in (region["state"], region["reason"]) if part)
        text = visible(region["content"] or "", _CONTENT)
        style = {State.OK: "", State.BLANK: "", State.PARTIAL: "yellow"}.get(region["state"] or State.OK, "red")
        origin, label = (region["origin"] or "").replace("_", " "), visible(region["label"], _CONTENT)
        rows.append([str(region["index"]), label, score, box, origin, Text(ended, style), text])
    names = [Column(name) for name in ("box in pixels", "read by", "state")]
    columns = [*right("region"), Column("label"), *right("score"), *names, Column("text", overflow="fold")]
    out.print()
    print_table(out, columns, rows)


def _show_step(step: dict[str, Any], out: Console) -> None:
    ended = ": ".join(visible(part) for part in (step["state"], step["reason"]) if part)
    say(out, Text.assemble("\n", (step["asset"], "bold"), f"  {ended}"))
    model = " at ".join(filter(None, (step["model"], step["revision"])))
    spent = f", {step['gpu_seconds']:.2f} GPU seconds" if step["gpu_seconds"] else ""
    run = f"{step['run_id']} at {step['made_at']}{spent}" if step["run_id"] else "not recorded"
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
        say(out, f"Stale: {parent} has changed since this was made from it.", "yellow")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items() if part not in ("", None))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _show_facts(rows: dict[str, str], out: Console) -> None:
    wide = max(map(len, rows), default=0)
    for name, value in rows.items():
        say(out, Text.assemble((f"  {name:<{wide}}  ", "dim"), visible(value, _VALUE)), indent=4)


def write_pictures(corpus: "Corpus", shown: dict[str, Any], target: Path, region: int | None) -> list[Path]:
    """Write the page and its regions as PNGs into a folder.

    `target` may be a file for a single picture. A page that was set upright is also written upright, and regions are
    cut out of that. With `region`, only that region is written. Raises `KopubError` if there is nothing to cut out.
    """
    from kopub.recognition.regions import pixel_box

    source = shown["source"]
    if source is None or source["problem"]:
        raise KopubError(f"{shown['id']} has no page picture: {source['problem'] if source else 'it is a query'}")
    with corpus.reader(shown["shard"]) as reader:
        data = bytes(reader.page(shown["id"], source["row"], source["sha256"]).data)
        upright = bytes(reader.page(shown["id"], source["row"], source["sha256"], source["upright"]).data)
    regions = {each["index"]: each for each in shown["regions"]}
    if region is not None and region not in regions:
        raise KopubError(f"{shown['id']} has no region {region}; it has {len(regions)}, from 0")
    name = shown["id"].replace("/", "_")
    one = bool(target.suffix) and not target.is_dir()
    if one and region is None:
        named = Image.registered_extensions().get(target.suffix.lower(), source["format"])
        is_other = named != source["format"]
        return [_write(target, _encode(Image.fromarray(decode(data)), target) if is_other else data)]
    pixels = decode(upright)
    height, width = pixels.shape[:2]
    written = [] if region is not None else [_write(target / f"{name}.{(source['format'] or 'bin').lower()}", data)]
    if region is None and source["upright"]:
        written.append(_write(target / f"{name}_upright.png", upright))
    for index in regions if region is None else [region]:
        x1, y1, x2, y2 = pixel_box(tuple(regions[index]["bbox"]), width, height)
        path = target if one else target / f"{name}_{index}.png"
        written.append(_write(path, _encode(Image.fromarray(pixels[y1:y2, x1:x2]), path)))
    return written


def _encode(image: Image.Image, path: Path) -> bytes:
    """Return a picture in the format of a file's suffix, else as PNG.

    Raises `KopubError` for a format that is only read, or holds no picture of this size.
    """
    file = io.BytesIO()
    try:
        image.save(file, Image.registered_extensions().get(path.suffix.lower(), "PNG"))
    except (KeyError, ValueError, OSError):
        raise KopubError(
            f"{path} cannot be written: no {path.suffix} picture can be made of it; name a .png file"
        ) from None
    return file.getvalue()


def _write(path: Path, content: bytes) -> Path:
    replace_bytes(path, content)
    return path
