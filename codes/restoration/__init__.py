"""From weights and an image to a restored image."""
