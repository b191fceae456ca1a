"""Values of a conversation: messages with their bytes kept, groups and turns, splicing, identity."""
