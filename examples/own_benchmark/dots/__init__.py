"""A benchmark of our own: how many dots are in the picture?"""
