"""One metric each: a known answer and what was read, as plain values. No benchmark, no table of the store."""
