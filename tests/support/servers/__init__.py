"""Real servers of other projects, where they are installed, and what tests need to know of them."""
