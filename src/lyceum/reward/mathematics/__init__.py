"""``reward=math``: where an answer stands (``answer``), what it names (``notation``), if it is right (``compare``)."""
