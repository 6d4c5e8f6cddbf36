"""What the commands show, apart from what they do."""
