"""What was read, as markdown and as plain text, and whether it looks right: no engine."""
