"""What is made: the assets, one module each."""
