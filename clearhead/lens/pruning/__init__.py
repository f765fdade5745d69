"""How much each head matters, and the model without those that matter least."""
