"""The admin pages: the API as a program asks it, the dashboard in a real browser."""
