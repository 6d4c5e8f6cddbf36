"""Layout on the CPU, without weights."""
