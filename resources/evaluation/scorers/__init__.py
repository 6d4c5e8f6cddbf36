"""One metric each, over plain values; no benchmark and no table of the store."""
