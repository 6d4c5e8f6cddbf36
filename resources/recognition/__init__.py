"""Region to text: what is written in every region, and the page as markdown."""
