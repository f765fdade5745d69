"""What it costs to run a model, and what the machine has to give."""
