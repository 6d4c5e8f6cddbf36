"""The tables: schemas, a Parquet file for each asset and shard, and records beside."""
