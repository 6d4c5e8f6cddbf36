"""Where pages come from: Arrow shards, Parquet files, a Hub dataset."""
