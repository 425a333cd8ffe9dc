"""Preparation and processes of `make up`. The embedded broker needs no Django."""
