"""The assets that say how well a corpus is read and found, one module each."""
