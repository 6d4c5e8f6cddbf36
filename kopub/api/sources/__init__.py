"""The sources of an opened corpus: a home, a release folder, the Hub."""
