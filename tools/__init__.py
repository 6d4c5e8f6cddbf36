"""What developers of the project run: none of it is installed."""
