"""The reading room, which shows a corpus in a browser on this machine."""
