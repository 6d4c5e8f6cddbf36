"""What is read, how well, and what that costs without a card."""
