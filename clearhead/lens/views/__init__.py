"""Pure drawing: patterns, links and probabilities to terminal text, SVG, PNG, HTML and JSON."""
