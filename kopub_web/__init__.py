"""The reading room: a corpus to look at in a browser, on this machine alone."""
