"""Who exists, who computes in a round and who uploads."""
