"""What the explorer asks of a real model: runs, their tensors, next tokens, changes, and writing step by step."""
