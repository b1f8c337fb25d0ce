"""The search for fusion plans, and the trained model that guides it."""
