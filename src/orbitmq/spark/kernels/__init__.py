"""Kernels: compiled conversions between stored records and Arrow columns."""
