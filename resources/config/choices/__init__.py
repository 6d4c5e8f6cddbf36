"""The sections of a profile that choose no engine."""
