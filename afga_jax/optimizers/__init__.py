"""How a client steps and how the server steps."""
