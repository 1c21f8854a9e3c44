from jaxspec.studies.tree.view import node_places


def test_a_parent_stands_over_the_middle_of_its_children():
    # root -> 0 (rank 1), 1 (rank 0); 1 -> 2, 3, 4. From left: 1's children by rank 4, 2, 3, then 0.
    place = node_places([-1, -1, 1, 1, 1], [1, 0, 5, 7, 2])
    assert place[[4, 2, 3, 0], 0].tolist() == [0, 1, 2, 3]
    assert place[1].tolist() == [1, 1]
    assert place[5].tolist() == [2, 0]
