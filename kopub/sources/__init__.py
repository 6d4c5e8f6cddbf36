"""Where an opened corpus is read: a home, a release folder, the Hub."""
