"""The shards: one static partition per file of the corpus, as its manifest lists them."""

import dagster as dg

from resources.config.settings import load_settings

shards = dg.StaticPartitionsDefinition(load_settings().corpus.manifest.keys)
