"""What claims are made from: sentences, tasks and languages, small models and their training, shares with intervals."""
