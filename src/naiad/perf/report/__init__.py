"""How results are shown: text, CSV, JSON, HTML, live."""
