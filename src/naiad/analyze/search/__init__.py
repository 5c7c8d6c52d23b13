"""Ways through a space: each asks for measurements, one after another, and sees what they found."""
