"""Where the index and the files of a corpus lie: on this machine, or at a URL and fetched."""
