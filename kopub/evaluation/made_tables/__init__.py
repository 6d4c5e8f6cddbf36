"""Tables that the evaluation makes itself, and the programs that print them."""
