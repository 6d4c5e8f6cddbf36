"""The dataset card and ATTRIBUTION.md: YAML for `datasets` and the Hub, text for people."""

import html
import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from datasets import DatasetInfo, Features
from datasets.info import DatasetInfosDict
from huggingface_hub import DatasetCardData
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from kopub.errors import visible, without_paths
from kopub.release.base import ASSETS, OPTIONAL_ASSETS, ReleaseDescription
from kopub.release.files import (
    ALL_CONFIGS,
    ATTRIBUTION,
    CHUNKS,
    CORRECTIONS,
    INCOMPLETE,
    PASSAGES,
    Inventory,
    documents,
    files_digest,
    incomplete_pages,
    licences,
    loadable_parts,
)
from kopub.release.fitness import fitness, hub_licences
from kopub.states import State
from kopub.store.corpus_tables import DOCUMENT_CHUNKS

_TEMPLATE = Path(__file__).with_name("card.md.jinja")
_LISTED = 20
"""Most incomplete pages that the card names; the `pages` config has them all."""
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))

_SAYS = {
    "pages": "A page: identity, how it ended at every step, its text and its markdown. Also loads as `corpus`.",
    "regions": "A region of a page in reading order: label, box, what was read in it.",
    "crops": "A picture cut out of a page; `path` is what the page's markdown links to.",
    "image_embeddings": "The vector of a page's image: float16, L2 norm 1.",
    "text_embeddings": "The vector of a page's text: float16, L2 norm 1.",
    "queries": "A query with its answer, the pages its source names, and a vector for dot products with text vectors.",
    "qrels": "A query and a page that answers it, under the names that BEIR and mteb read.",
    CHUNKS: "A piece of a document, by its structure: its text, the titles above it, its pages and boxes.",
    "figure_embeddings": "The vector of an image or chart of a page, from its picture and caption: float16, L2 norm 1.",
    "figure_notes": "What a model made up about an image or chart, under `lineage` which; none of it is printed there.",
    PASSAGES: "The vector of meaning of a passage of a page, from character `start` to `end` of its text.",
    CORRECTIONS: "A person's correction of a region, or mark of a right page, whose `after` is JSON of the page.",
    "lineage": "A page or query at one step: the engine, model, revision, recipe and run that made it.",
}

_ORDER = (*ASSETS, *OPTIONAL_ASSETS)

Licences = Mapping[str | None, int]


def render_card(folder: Path, inventory: Inventory, about: ReleaseDescription, hashes: Mapping[str, str]) -> str:
    """Return the whole card.

    Text from pages, sources and settings is shown as plain text.
    """
    pages = inventory["pages"]
    stated = licences(inventory, about.license)
    lost = list(islice(incomplete_pages(folder, pages), _LISTED + 1))
    regions: Counter[str] = Counter(to_read=0, lost=0, text_layer=0)
    ended: Counter[str] = Counter()
    doubtful = 0
    for part in pages:
        regions.update(part.summary["regions"])
        ended.update(part.summary["ended"])
        doubtful += part.summary["doubtful"]
    corrected = dict.fromkeys(("corrections", "pages", "checked"), 0)
    for part in inventory[CORRECTIONS]:
        for key in corrected:
            corrected[key] += part.summary[key]
    scores = [] if about.scores is None else about.scores.to_pylist()
    reading: list[dict[str, Any]] = []
    for table in about.reading:
        reading += [row for row in table.to_pylist() if row["slice"] == "all"]
    steps: dict[str, Counter[str]] = {asset: Counter() for asset in ASSETS}
    for part in (*pages, *inventory["queries"], *inventory[CHUNKS]):
        for asset, states in part.summary["states"].items():
            steps.setdefault(asset, Counter()).update(states)
    # Documents in chunks; an incomplete one lacks pages or all of its chunks.
    chunked = steps.get(DOCUMENT_CHUNKS.name, Counter())
    rows: Counter[str] = Counter()
    configs: list[dict[str, Any]] = []
    for config in ALL_CONFIGS:
        if inventory[config]:
            used = loadable_parts(inventory[config])
            rows[config] = sum(part.rows for part in used)
            size = sum(part.bytes for part in used)
            configs.append(
                {
                    "name": config,
                    "rows": f"{rows[config]:,}",
                    "files": len(used),
                    "megabytes": f"{size / 1e6:,.1f}",
                    "says": Markup(_SAYS[config]),
                }
            )
    body = _template().render(
        about=about,
        fitness=fitness(inventory, about),
        published=len(pages),
        rows=rows,
        configs=configs,
        empty=0 in rows.values(),
        states=list(State),
        ended=ended,
        steps=steps,
        regions=regions,
        lost=lost[:_LISTED],
        more_lost=len(lost) > _LISTED,
        doubtful=doubtful,
        corrected=corrected,
        chunks={"documents": chunked.total(), "incomplete": sum(chunked[state] for state in INCOMPLETE)},
        unjudged=sum(part.summary["unjudged"] for part in inventory["queries"]),
        made=_list_makers(inventory),
        scores=[row for row in scores if row["query_type"] == "all"],
        reading=reading,
        documents=len({document for document, *_ in documents(inventory, about.license)}),
        attribution=ATTRIBUTION,
        licences=sorted(stated.items(), key=lambda item: (-item[1], item[0] or "")),
        page_images='"image"' in loadable_parts(pages)[0].features if rows["pages"] else False,
    )
    return compose_card(front_matter(inventory, _card_keys(rows["pages"], stated, about), hashes), body)


@cache
def _template() -> Template:
    """Return the compiled template of the body; compiling takes longer than filling it in."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=markdown, autoescape=False
    )
    return environment.from_string(_TEMPLATE.read_text("utf-8"))


def _card_keys(pages: int, stated: Licences, about: ReleaseDescription) -> dict[str, Any]:
    """Return the YAML keys of the card besides the configs."""
    under = [about.publish_under] if about.publish_under else stated
    return {
        "pretty_name": about.title,
        "language": list(about.languages),
        "license": hub_licences(under),
        "size_categories": [next((name for limit, name in _SIZES if pages < limit), "n>1M")],
        "task_categories": ["image-to-text", "visual-document-retrieval"],
        "tags": ["ocr", "document-layout", "embeddings"],
    }


def _list_makers(inventory: Inventory) -> list[dict[str, Any]]:
    """Return every engine and model that made rows, with their number.

    A step has two while an upgrade is under way.
    """
    counted: Counter[tuple[str | None, ...]] = Counter()
    for part in inventory["lineage"]:
        for *by, rows in part.summary["made"]:
            counted[tuple(by)] += rows
    makers = []
    for (asset, engine, model, revision, parameters, versions), rows in counted.items():
        settings = {**json.loads(parameters or "{}"), **json.loads(versions or "{}")}
        makers.append(
            {
                "step": asset,
                "engine": engine or "the platform",
                "model": model or "",
                "revision": revision or "",
                "rows": rows,
                "settings": ", ".join(f"{name} {settings[name]}" for name in sorted(settings)),
            }
        )
    return sorted(makers, key=lambda row: (_ORDER.index(row["step"]), -row["rows"]))


def render_attribution(inventory: Inventory, about: ReleaseDescription) -> str:
    """Return the whole file.

    A document whose pages lie in several shards has a single line.
    """
    lines = [
        f"# Sources of {markdown(about.title)}",
        "",
        f"All pages come from {markdown(about.source)}. They were changed: text was read from them, pictures were cut "
        "out of them and vectors were computed from them, by the engines that the card names. A page, and what was "
        "made from it, stays under the licence of its document.",
        "",
        "| document | source file | licence | pages |",
        "|---|---|---|--:|",
    ]
    counted: Counter[tuple[str | None, str, str | None]] = Counter()
    for document, source, licence, pages in documents(inventory, about.license):
        counted[document, source, licence] += pages
    for (document, source, licence), pages in counted.items():
        named = (document or "not stated", source, licence or "not stated", pages)
        lines.append(f"| {' | '.join(map(markdown, named))} |")
    return "\n".join(lines) + "\n"


CORPUS = "corpus"
"""A second name of `pages`: mteb looks for configs called corpus, queries and qrels."""


def front_matter(inventory: Inventory, keys: Mapping[str, Any], hashes: Mapping[str, str]) -> DatasetCardData:
    """Return the card's YAML: its other `keys`, configs and their features.

    Configs and features are those in the folder.
    """
    own = {key: value for key, value in keys.items() if key not in ("configs", "dataset_info")}
    infos = {}
    configs = []
    for config, parts in inventory.items():
        used = loadable_parts(parts)
        if not used:
            continue
        # A pattern includes future shards; if some files must be left out, the others are named.
        files = f"data/{config}/*.parquet" if len(used) == len(parts) else [part.path for part in used]
        configs.append({"config_name": config, "data_files": files})
        features = Features.from_dict(json.loads(used[0].features)["info"]["features"])
        infos[config] = DatasetInfo(features=features, config_name=config)
        if config == "pages":
            configs[-1]["default"] = True
            configs.append({"config_name": CORPUS, "data_files": files})
    data = DatasetCardData(**own, configs=configs)
    if infos:
        DatasetInfosDict(infos).to_dataset_card_data(data)
    return stamp_configs(data.to_dict(), hashes)


def stamp_configs(listed: Mapping[str, Any], hashes: Mapping[str, str]) -> DatasetCardData:
    """Return the YAML `listed`, each config with a digest of its contents.

    `datasets` keeps a copy of the data loaded from a folder and looks for newer data only if the YAML has changed.
    """
    configs = []
    for config in listed.get("configs", []):
        name = "pages" if config["config_name"] == CORPUS else config["config_name"]
        files = {path: sha256 for path, sha256 in hashes.items() if path.startswith(f"data/{name}/")}
        configs.append({**config, "description": f"contents {files_digest(files)[:16]}"})
    return DatasetCardData(**{**listed, "configs": configs})


def is_listed(config: str, features: str | None, listed: Mapping[str, Any]) -> bool:
    """Return whether the YAML `listed` loads rows of `config` with these `features`.

    None stands for any features.
    """
    patterns = (entry["data_files"] for entry in listed.get("configs", []) if entry["config_name"] == config)
    if not isinstance(next(patterns, None), str):
        return False
    if features is None:
        return True
    info = DatasetInfosDict.from_dataset_card_data(DatasetCardData(**listed))[config]
    return info.features == Features.from_dict(json.loads(features)["info"]["features"])


def compose_card(data: DatasetCardData, body: str) -> str:
    return f"---\n{data.to_yaml()}\n---\n\n{body.strip()}\n"


def split_card(card: str) -> tuple[dict[str, Any], str]:
    """Return the YAML and the body of a card.

    Raises `ValueError` and `yaml.YAMLError`.
    """
    block = REGEX_YAML_BLOCK.search(card)
    # Like `DatasetCard`, but that parses in Python, which takes five times as long.
    listed = (yaml.load(block[2], yaml.CSafeLoader) or {}) if block else {}
    if not isinstance(listed, dict):
        raise ValueError("the YAML of a card has to be a mapping")
    data = DatasetCardData(**listed, ignore_metadata_errors=False)
    return data.to_dict(), (card[block.end() :] if block else card).strip()


_SHOWN = 200
"""Most characters of a value that are shown; ids and reasons can come from a damaged source."""
_MARKDOWN = re.compile(r"([\\`*_\[\]|~$])")


def markdown(value: object) -> str:
    """Return `value` as one line of markdown that renders as plain text.

    It has no markup, HTML, links or paths of a machine.
    """
    if isinstance(value, Markup):
        return value
    # A bare address would become a link.
    text = visible(without_paths(str(value)), _SHOWN)
    unlinked = html.escape(text, quote=False).replace("://", "&#58;//").replace("www.", "www&#46;")
    return _MARKDOWN.sub(r"\\\1", unlinked)
