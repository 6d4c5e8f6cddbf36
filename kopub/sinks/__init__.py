"""Vector stores of other programs, into which the chunks of documents are brought."""
