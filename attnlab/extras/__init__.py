"""Features beside the main job; nothing outside this package and the command line imports them."""
