"""Networks for images, with the layers of well-known ones and random weights."""
