"""The sources of an opened corpus: a home, a release folder, a repository of the Hub."""
