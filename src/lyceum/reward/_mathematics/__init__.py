"""``reward=math``: finding an answer (``answer``), its values (``notation``), whether it is correct (``compare``)."""
