"""What turns text and conversations into token ids, and back."""
