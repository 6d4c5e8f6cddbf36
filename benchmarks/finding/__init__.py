"""What it takes to search, look at and give away a corpus of the reference's size."""
