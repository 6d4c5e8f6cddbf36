"""What is told of a table that was made: to the ledger, to its own footer, to the UI."""
