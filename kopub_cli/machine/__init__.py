"""Commands about this machine and its servers."""
