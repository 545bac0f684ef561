"""The court of claims: studies that state a published claim, the rulings on all of them, and the page."""
