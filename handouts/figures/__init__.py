"""The handout's figures: each module draws some, from real runs or from the reference's own code.

Nothing depends on colour alone: what differs differs in lightness, pattern or shape as well.
"""
