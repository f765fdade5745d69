"""Chapter 8: what a long text costs, what is done about it, and what service costs."""
