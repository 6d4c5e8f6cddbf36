"""Where the files of a release lie. No Dagster."""

from pathlib import Path

CONFIGS = ("pages", "regions", "crops", "image_embeddings", "text_embeddings", "queries", "qrels", "lineage")
"""What every release holds, in the order it is made."""
FIGURE_CONFIGS = ("figure_embeddings", "figure_notes")
"""What it holds besides, where the profile wants it."""
ALL_CONFIGS = (*CONFIGS, *FIGURE_CONFIGS)


def part_path(config: str, shard: str) -> str:
    """Where a shard of a config lies, relative to the release."""
    return f"data/{config}/{shard}.parquet"


def published(folder: Path, config: str) -> list[Path]:
    """The files of a config, in shard order."""
    return sorted((folder / "data" / config).glob("shard_*.parquet"), key=lambda path: (len(path.stem), path.stem))
