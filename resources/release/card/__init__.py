"""What a release says of itself in words: its card, attribution, licences and fitness."""
