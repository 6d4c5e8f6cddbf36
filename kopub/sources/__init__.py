"""Where a corpus that was opened lies: a home, a release folder, a repository of the Hub."""
