"""Distributed training in PyTorch, from the bottom up: one module for each part."""
