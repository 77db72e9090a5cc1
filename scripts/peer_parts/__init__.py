"""What `scripts/peers.py` is made of."""
