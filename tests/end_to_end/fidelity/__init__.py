"""Is the proxy faithful? A corpus of requests and answers, and a comparison of every byte both ways."""
