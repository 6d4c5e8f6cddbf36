"""What asks a model server: client processes and their HTTP client. They import no Dagster, torch or vLLM."""
