"""What a release holds: its configs as Parquet files, and what says whether they are whole."""
