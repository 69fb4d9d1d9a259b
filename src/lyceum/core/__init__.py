"""What flows between the slots of the loop: tasks, trees, forests, and the settings that build components."""
