"""Who mixes with whom, what depends on whom, and what is sent."""
