"""A dataset of the Hub, downloaded by `datasets`: Arrow files in its cache, and the queries about its pages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

_BESIDE = frozenset({"qa", "annotations", "queries"})
"""Roles of tables beside the pages: questions, the pages that answer them, and indexed queries."""


@dataclass(frozen=True, slots=True)
class HubCorpus:
    """`files` are the Arrow files of the pages, in order; `revision` is the commit they are of."""

    revision: str
    files: list[Path]
    questions: "pa.Table | None"
    annotations: "pa.Table | None"


def role(name: str) -> str:
    """What a file or configuration holds, by the last word of its name: one of `_BESIDE`, or else "corpus"."""
    word = name.lower().replace("_", "-").rpartition("-")[2]
    return word if word in _BESIDE else "corpus"


def download(dataset_id: str, progress: Callable[[str], None]) -> HubCorpus:
    """Download the configurations of a dataset, or take them from the cache. Raises `SourceError`."""
    from datasets import get_dataset_config_names, load_dataset, load_dataset_builder
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    try:
        names = get_dataset_config_names(dataset_id)
        by_role: dict[str, list[str]] = {}
        for name in names:
            by_role.setdefault(role(name), []).append(name)
        if len(by_role.get("corpus", [])) != 1:
            raise SourceError(f"{dataset_id} has the configurations {', '.join(names)}: which holds pages is not clear")
        revision = load_dataset_builder(dataset_id, by_role["corpus"][0]).hash
        loaded: dict[str, Dataset] = {}
        for part in ("corpus", "qa", "annotations"):
            for name in by_role.get(part, [])[:1]:
                progress(f"{dataset_id}: bringing in {name}")
                loaded[part] = _only_split(load_dataset(dataset_id, name, revision=revision), f"{dataset_id} {name}")
    except (DatasetsError, HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise SourceError(
            f"{dataset_id} cannot be brought in from the Hub: {reason}; a folder with its Parquet files will do as well"
        ) from None
    return HubCorpus(
        revision=str(revision),
        files=[Path(file["filename"]) for file in loaded["corpus"].cache_files],
        questions=loaded["qa"].data.table if "qa" in loaded else None,
        annotations=loaded["annotations"].data.table if "annotations" in loaded else None,
    )


def _only_split(splits: "Mapping[Any, Dataset]", name: str) -> "Dataset":
    if len(splits) != 1:
        raise SourceError(f"{name} has the splits {', '.join(splits)}; a corpus has one")
    return next(iter(splits.values()))
