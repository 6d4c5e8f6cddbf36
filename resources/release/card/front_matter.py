"""The YAML of a dataset card: what `datasets` and the Hub read of a release. Pure."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

from resources.release.dataset import checksums
from resources.release.dataset.released_files import Inventory, in_use

if TYPE_CHECKING:
    from huggingface_hub import DatasetCardData

CORPUS = "corpus"
"""A second name of `pages`: mteb looks for configs called corpus, queries and qrels."""


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
        configs.append({**config, "description": f"contents {checksums.digest(hashes, name)}"})
    return DatasetCardData(**{**listed, "configs": configs})


def is_listed(config: str, features: str | None, listed: Mapping[str, Any]) -> bool:
    """Whether the YAML `listed` has a pattern that rows of `config` with these `features` (None: any) are loaded by."""
    from datasets import Features
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    patterns = (entry["data_files"] for entry in listed.get("configs", []) if entry["config_name"] == config)
    if not isinstance(next(patterns, None), str):
        return False
    if features is None:
        return True
    info = DatasetInfosDict.from_dataset_card_data(DatasetCardData(**listed))[config]
    return info.features == Features.from_dict(json.loads(features)["info"]["features"])


def compose(data: "DatasetCardData", body: str) -> str:
    return f"---\n{data.to_yaml()}\n---\n\n{body.strip()}\n"


def split(card: str) -> tuple[dict[str, Any], str]:
    """The YAML and the body of a card. Raises `ValueError` and `yaml.YAMLError`."""
    from huggingface_hub import DatasetCardData
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    found = REGEX_YAML_BLOCK.search(card)
    # As `DatasetCard` does, which parses in Python: that takes five times as long.
    listed = (yaml.load(found[2], yaml.CSafeLoader) or {}) if found else {}
    if not isinstance(listed, dict):
        raise ValueError("the YAML of a card has to be a mapping")
    data = DatasetCardData(**listed, ignore_metadata_errors=False)
    return data.to_dict(), (card[found.end() :] if found else card).strip()
