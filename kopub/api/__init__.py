"""The Python API: reading what KoPub made."""
