"""The lesson's statements as measurements: one file a claim, by chapter (see `catalogue`)."""
