"""The code that the client processes load to read regions: no Dagster, torch or vLLM."""
