"""Training: objectives, data, optimisers and schedules, and the trainer that never loses work."""
