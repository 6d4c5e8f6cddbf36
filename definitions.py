"""The definitions that Dagster loads from a checkout: `dagster dev`, `dagster asset materialize -m definitions`."""

from kopub_assets.definitions import build_assets, definitions, definitions_of

__all__ = ["build_assets", "definitions", "definitions_of"]
