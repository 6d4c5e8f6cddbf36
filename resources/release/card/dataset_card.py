"""The dataset card: YAML that `datasets` and the Hub read, and text that people read. Pure."""

import json
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from markupsafe import Markup

from resources.release.base import ASSETS, FIGURE_ASSETS, ReleaseDescription
from resources.release.card import attribution
from resources.release.card.escaping import markdown
from resources.release.card.fitness import fitness
from resources.release.card.front_matter import compose, front_matter
from resources.release.card.licences import hub_licences
from resources.release.dataset.part_paths import ALL_CONFIGS
from resources.release.dataset.released_files import Inventory, documents, in_use, incomplete_pages, licences
from resources.states import State

NAME = "README.md"

_TEMPLATE = Path(__file__).with_name("card.md.jinja")
_LISTED = 20
"""Pages that lost something and are named by the card; the `pages` config holds them all."""
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))

_SAYS = {
    "pages": "A page: identity, how it ended at every step, its text and its markdown. Also loads as `corpus`.",
    "regions": "A region of a page in reading order: label, box, what was read in it.",
    "crops": "A picture cut out of a page; `path` is what the page's markdown links to.",
    "image_embeddings": "The vector of a page's image: float16, L2 norm 1.",
    "text_embeddings": "The vector of a page's text: float16, L2 norm 1.",
    "queries": "A query with its answer, the pages its source names, and a vector for dot products with text vectors.",
    "qrels": "A query and a page that answers it, under the names that BEIR and mteb read.",
    "figure_embeddings": "The vector of an image or chart of a page, from its picture and caption: float16, L2 norm 1.",
    "figure_notes": "What a model made up about an image or chart, under `lineage` which; none of it is printed there.",
    "lineage": "A page or query at one step: the engine, model, revision, recipe and run that made it.",
}

_ORDER = (*ASSETS, *FIGURE_ASSETS)

Licences = Mapping[str | None, int]


def render(folder: Path, inventory: Inventory, about: ReleaseDescription, hashes: Mapping[str, str]) -> str:
    """The whole card. Everything that comes from a page, a source or a setting is shown as plain text."""
    pages = inventory["pages"]
    rows = {config: sum(part.rows for part in in_use(inventory[config])) for config in ALL_CONFIGS}
    stated = licences(inventory, about.license)
    lost = list(islice(incomplete_pages(folder, pages), _LISTED + 1))
    body = (
        _environment()
        .from_string(_TEMPLATE.read_text("utf-8"))
        .render(
            about=about,
            fitness=fitness(inventory, about),
            published=len(pages),
            rows=rows,
            configs=[_config_row(config, inventory) for config in ALL_CONFIGS if inventory[config]],
            empty=any(inventory[config] and not rows[config] for config in ALL_CONFIGS),
            states=[state.value for state in State],
            ended=_ended(inventory),
            steps=_steps(inventory),
            regions={
                key: sum(part.summary["regions"].get(key, 0) for part in pages)
                for key in ("to_read", "lost", "text_layer")
            },
            lost=lost[:_LISTED],
            more_lost=len(lost) > _LISTED,
            doubtful=sum(part.summary["doubtful"] for part in pages),
            unjudged=sum(part.summary["unjudged"] for part in inventory["queries"]),
            made=_made(inventory),
            scores=_scores(about.scores),
            reading=[row for scores in about.reading for row in scores.to_pylist() if row["slice"] == "all"],
            documents=len({document for document, *_ in documents(inventory, about.license)}),
            attribution=attribution.NAME,
            licences=sorted(stated.items(), key=lambda item: (-item[1], item[0] or "")),
            page_images='"image"' in in_use(pages)[0].features if rows["pages"] else False,
        )
    )
    return compose(front_matter(inventory, _known(rows["pages"], stated, about), hashes), body)


def _known(pages: int, stated: Licences, about: ReleaseDescription) -> dict[str, Any]:
    """What the YAML says besides the configs."""
    under = [about.publish_under] if about.publish_under else stated
    return {
        "pretty_name": about.title,
        "language": list(about.languages),
        "license": hub_licences(under),
        "size_categories": [next((name for limit, name in _SIZES if pages < limit), "n>1M")],
        "task_categories": ["image-to-text", "visual-document-retrieval"],
        "tags": ["ocr", "document-layout", "embeddings"],
    }


def _environment() -> Any:
    from jinja2 import Environment, StrictUndefined

    return Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=markdown, autoescape=False
    )


def _config_row(config: str, inventory: Inventory) -> dict[str, Any]:
    used = in_use(inventory[config])
    size = sum(part.bytes for part in used)
    return {
        "name": config,
        "rows": f"{sum(part.rows for part in used):,}",
        "files": len(used),
        "megabytes": f"{size / 1e6:,.1f}",
        "says": Markup(_SAYS[config]),
    }


def _ended(inventory: Inventory) -> list[int]:
    """How many pages ended in each state, over all steps and shards."""
    counted: Counter[str] = Counter()
    for part in inventory["pages"]:
        counted.update(part.summary["ended"])
    return [counted[state.value] for state in State]


def _steps(inventory: Inventory) -> list[tuple[str, list[int]]]:
    """How many rows of each asset ended in each state, over all shards."""
    counted: dict[str, Counter[str]] = {asset: Counter() for asset in ASSETS}
    for part in (*inventory["pages"], *inventory["queries"]):
        for asset, states in part.summary["states"].items():
            counted.setdefault(asset, Counter()).update(states)
    return [(asset, [states[state.value] for state in State]) for asset, states in counted.items()]


def _made(inventory: Inventory) -> list[dict[str, Any]]:
    """Every engine and model that made rows, with how many: two of a step, while an upgrade is under way."""
    counted: Counter[tuple[str | None, ...]] = Counter()
    for part in inventory["lineage"]:
        for *by, rows in part.summary["made"]:
            counted[tuple(by)] += rows
    made = []
    for (asset, engine, model, revision, parameters, versions), rows in counted.items():
        settings = {**json.loads(parameters or "{}"), **json.loads(versions or "{}")}
        made.append(
            {
                "step": asset,
                "engine": engine or "the platform",
                "model": model or "",
                "revision": revision or "",
                "rows": rows,
                "settings": ", ".join(f"{name} {settings[name]}" for name in sorted(settings)),
            }
        )
    return sorted(made, key=lambda row: (_ORDER.index(row["step"]), -row["rows"]))


def _scores(scores: pa.Table | None) -> list[dict[str, Any]]:
    """The scores over all kinds of queries, with the interval that 95 of 100 samples of queries would give."""
    if scores is None:
        return []
    return [row for row in scores.to_pylist() if row["query_type"] == "all"]
