"""What the lesson's figures ask: a file or a folder for each part of a chapter, each with a few operations."""
