"""The tables: their schemas, one Parquet file for each asset and shard, and what is kept beside them."""
