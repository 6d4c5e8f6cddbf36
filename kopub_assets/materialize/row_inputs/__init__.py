"""What the rows of a table are made from, and which of them need not be made again."""
