"""The store: table schemas, a Parquet file for each asset and shard, and run records."""
