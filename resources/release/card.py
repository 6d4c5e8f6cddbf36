"""The dataset card: YAML that `datasets` and the Hub read, and text that people read. Pure."""

import html
import json
import re
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from resources.release import sums
from resources.release.base import PAGE_ASSETS, ReleaseAbout
from resources.release.configs import CONFIGS
from resources.release.inventory import Inventory, Part, in_use, lost_pages
from resources.release.licences import hub_licences
from resources.states import State

if TYPE_CHECKING:
    from huggingface_hub import DatasetCardData

NAME = "README.md"
CORPUS = "corpus"
"""A second name of `pages`: mteb looks for configs called corpus, queries and qrels."""

_TEMPLATE = Path(__file__).with_name("card.md.jinja")
_LISTED = 20
"""Lost pages that the card names; the `pages` config holds them all."""
_SHOWN = 200
"""Characters of a value that a card shows; ids and reasons can come from a damaged source."""
_MARKDOWN = re.compile(r"([\\`*_\[\]|~$])")
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))

_SAYS = {
    "pages": "A page: identity, how it ended at every step, its text and its markdown. Also loads as `corpus`.",
    "regions": "A region of a page in reading order: label, box, what was read in it.",
    "crops": "A picture cut out of a page; `path` is what the page's markdown links to.",
    "image_embeddings": "The vector of a page's image: float16, L2 norm 1.",
    "text_embeddings": "The vector of a page's text: float16, L2 norm 1.",
    "queries": "A query with its answer and its vector, which is compared with text vectors by dot product.",
    "qrels": "A query and a page that answers it, under the names that BEIR and mteb read.",
}


def front_matter(inventory: Inventory, known: Mapping[str, Any], hashes: Mapping[str, str]) -> "DatasetCardData":
    """The card's YAML: `known` keys, with the configs and their features as they are in the folder."""
    from datasets import DatasetInfo, Features
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    kept = {key: value for key, value in known.items() if key not in ("configs", "dataset_info")}
    infos = {}
    configs = []
    for config, parts in inventory.items():
        used = in_use(parts)
        if not used:
            continue
        # A pattern holds for shards still to come; where some files must stay out, the others are named.
        files = f"data/{config}/*.parquet" if len(used) == len(parts) else [part.path for part in used]
        configs.append({"config_name": config, "data_files": files})
        features = Features.from_dict(json.loads(used[0].features)["info"]["features"])
        infos[config] = DatasetInfo(features=features, config_name=config)
        if config == "pages":
            configs[-1]["default"] = True
            configs.append({"config_name": CORPUS, "data_files": files})
    data = DatasetCardData(**kept, configs=configs)
    if infos:
        DatasetInfosDict(infos).to_dataset_card_data(data)
    return stamped(data.to_dict(), hashes)


def stamped(listed: Mapping[str, Any], hashes: Mapping[str, str]) -> "DatasetCardData":
    """The YAML `listed`, each config with a digest of its contents.

    `datasets` keeps a copy of what it loaded from a folder and looks for a newer one only when the
    YAML has changed.
    """
    from huggingface_hub import DatasetCardData

    configs = []
    for config in listed.get("configs", []):
        name = "pages" if config["config_name"] == CORPUS else config["config_name"]
        configs.append({**config, "description": f"contents {sums.digest(hashes, name)}"})
    return DatasetCardData(**{**listed, "configs": configs})


def is_listed(config: str, features: str, listed: Mapping[str, Any]) -> bool:
    """Whether the YAML `listed` has a pattern that rows of `config` with these `features` are loaded by."""
    from datasets import Features
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    patterns = (entry["data_files"] for entry in listed.get("configs", []) if entry["config_name"] == config)
    if not isinstance(next(patterns, None), str):
        return False
    info = DatasetInfosDict.from_dataset_card_data(DatasetCardData(**listed))[config]
    return info.features == Features.from_dict(json.loads(features)["info"]["features"])


def render(folder: Path, inventory: Inventory, about: ReleaseAbout, hashes: Mapping[str, str]) -> str:
    """The whole card. Everything that comes from a page, a source or a setting is shown as plain text."""
    pages = inventory["pages"]
    rows = {config: sum(part.rows for part in in_use(inventory[config])) for config in CONFIGS}
    licences = _licences(inventory, about)
    data = front_matter(
        inventory,
        {
            "pretty_name": about.title,
            "language": list(about.languages),
            "license": hub_licences(licences),
            "size_categories": [_size(rows["pages"])],
            "task_categories": ["image-to-text", "visual-document-retrieval"],
            "tags": ["ocr", "document-layout", "embeddings"],
        },
        hashes,
    )
    lost = list(islice(lost_pages(folder, pages), _LISTED + 1))
    body = (
        _environment()
        .from_string(_TEMPLATE.read_text("utf-8"))
        .render(
            about=about,
            published=len(pages),
            rows=rows,
            configs=[_config_row(config, inventory) for config in CONFIGS if rows[config]],
            states=[state.value for state in State],
            steps=_steps(inventory),
            lost=lost[:_LISTED],
            more_lost=len(lost) > _LISTED,
            outside=sum(part.rows > 0 for parts in inventory.values() for part in _outside(parts)),
            made_with=[(asset, recipe["engine"], _details(recipe)) for asset, recipe in about.made_with.items()],
            licences=sorted(licences.items(), key=lambda item: (-item[1], item[0] or "")),
        )
    )
    return compose(data, body)


def compose(data: "DatasetCardData", body: str) -> str:
    return f"---\n{data.to_yaml()}\n---\n\n{body.strip()}\n"


def split(card: str) -> tuple[dict[str, Any], str]:
    """The YAML and the body of a card."""
    from huggingface_hub import DatasetCard

    parsed = DatasetCard(card, ignore_metadata_errors=False)
    return parsed.data.to_dict(), parsed.text.strip()


def plain(value: object) -> str:
    """`value` as one line of markdown that is read as it stands: no markup, no HTML, no control characters."""
    if isinstance(value, Markup):
        return value
    text = "".join(char if char.isprintable() else " " for char in str(value))
    text = " ".join(text.split())
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    # An address would become a link by itself.
    unlinked = html.escape(shown, quote=False).replace("://", "&#58;//").replace("www.", "www&#46;")
    return _MARKDOWN.sub(r"\\\1", unlinked)


def _environment() -> Any:
    from jinja2 import Environment, StrictUndefined

    return Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=plain, autoescape=False
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


def _steps(inventory: Inventory) -> list[tuple[str, list[int]]]:
    """How many rows of each asset ended in each state, over all shards."""
    counted: dict[str, Counter[str]] = {asset: Counter() for asset in (*PAGE_ASSETS, "query_embeddings")}
    for part in (*inventory["pages"], *inventory["queries"]):
        for asset, states in part.summary["states"].items():
            counted[asset].update(states)
    return [(asset, [states[state.value] for state in State]) for asset, states in counted.items()]


def _outside(parts: list[Part]) -> list[Part]:
    used = in_use(parts)
    return [part for part in parts if part not in used]


def _licences(inventory: Inventory, about: ReleaseAbout) -> dict[str | None, int]:
    counted: Counter[str | None] = Counter()
    for part in inventory["pages"]:
        for licence, pages in part.summary["licenses"]:
            counted[licence or about.license] += pages
    return dict(counted)


def _size(rows: int) -> str:
    return next((name for limit, name in _SIZES if rows < limit), "n>1M")


def _details(recipe: Mapping[str, Any]) -> str:
    settings = {**recipe.get("parameters", {}), **recipe.get("weights", {})}
    return ", ".join(f"{name} {settings[name]}" for name in sorted(settings))
