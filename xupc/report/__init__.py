"""What results of `xupc bench` say: a page, Markdown, and whether anything got slower."""
