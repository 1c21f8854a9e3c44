"""Tree searches and the AAT law on text of the embedded network that neither the network nor the searches have seen.

Every draft ranks the target's own greedy text at every root; from these ranks follows exactly what any static tree would gain
when decoding it. One tree is decoded for proof.
"""
