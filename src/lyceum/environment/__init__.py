"""What answers the policy's turns: tools, games, search engines."""
