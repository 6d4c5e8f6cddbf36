"""Sources of pages: Arrow shards, Parquet files, Hub datasets, documents."""
