from rcil.presets import preset_names
from rcil.train.preset_summary import summaries


def test_one_line_a_preset():
    found = {summary.name: tuple(vars(summary).values())[1:] for summary in summaries()}
    assert list(found) == preset_names()
    assert found["voc-10-1-disjoint"] == ("voc", "10-1 disjoint", 11, 21)
    assert found["voc-15-1-order-c"] == ("voc", "15-1 overlapped, voc-c", 6, 21)
    assert found["ade-50-50"] == ("ade", "50-50 overlapped", 3, 151)
    assert found["cityscapes-11-5"] == ("cityscapes", "11-5 domains", 3, 19)
    assert found["cityscapes-1-1"] == ("cityscapes", "1-1 domains", 18, 19)
