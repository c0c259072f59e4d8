"""The processes: zygote, leader and ranks, and the wires and memory between them."""
