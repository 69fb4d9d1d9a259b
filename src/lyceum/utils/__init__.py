"""What every part of the package may use and what uses none of them: text from outside, the terminal, user files."""
