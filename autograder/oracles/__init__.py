"""Implementations of the assignment out of torch.distributed itself, to compare with.

Each file is served to ranks as a module of the package `assignment`, like a submission's.
"""
