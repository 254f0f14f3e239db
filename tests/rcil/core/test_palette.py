from rcil.core.palette import colour_of


def test_the_voc_colours():
    assert [colour_of(i) for i in (0, 1, 2, 3, 15, 20)] == [
        (0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0), (192, 128, 128), (0, 64, 128)]  # fmt: skip


def test_all_different():
    assert len({colour_of(i) for i in range(256)}) == 256
