"""The managed vLLM server: its flags, its processes, its lease, and the one HTTP client."""
