"""What happens in a round, and how it is executed."""
