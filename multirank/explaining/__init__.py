"""What wrong numbers look like: on which ranks, where, and what mistake they bear out."""
