"""The commands that compare, sweep, reproduce a paper and keep data."""
