"""How a task's tree grows: sampling and search."""
