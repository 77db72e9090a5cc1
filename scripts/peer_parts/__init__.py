"""What `scripts/peers.py` is made of."""

IMAGES, SIZE = 15, 256  # images of each set, and the side of their crops, unless asked otherwise
