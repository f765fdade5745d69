"""Chapter 5: order, sinusoids and rotary positions."""
