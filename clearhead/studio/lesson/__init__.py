"""What the lesson's figures ask: a folder for each chapter, each file a few operations."""
