"""How weights are updated."""
