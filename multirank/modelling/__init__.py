"""Communication on a modelled fabric, in virtual time."""
