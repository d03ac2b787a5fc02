"""How the HTML pages of the tools begin. Each is one file that loads nothing from elsewhere."""

HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
"""
"""For a `string.Template`; `$title` is to be escaped by who fills it in. The rest of the head follows."""
