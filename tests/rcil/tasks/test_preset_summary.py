from rcil.presets import preset_names
from rcil.tasks.preset_summary import summaries


def test_one_line_a_preset():
    found = {summary.name: tuple(vars(summary).values())[1:] for summary in summaries()}
    assert list(found) == preset_names()
    assert found["voc-10-1-disjoint"] == ("voc", "10-1 disjoint", 11, 21)
    assert found["voc-15-1-order-c"] == ("voc", "15-1 overlapped, voc-c", 6, 21)
    assert found["ade-50-50"] == ("ade", "50-50 overlapped", 3, 151)
    cities = {name: values[1:3] for name, values in found.items() if name.startswith("cityscapes")}
    assert cities == {
        "cityscapes-11-5": ("11-5 domains", 3),
        "cityscapes-11-1": ("11-1 domains", 11),
        "cityscapes-1-1": ("1-1 domains", 21),
        "cityscapes-11-5-clean": ("11-5 domains, clean", 3),
        "cityscapes-11-1-clean": ("11-1 domains, clean", 8),
        "cityscapes-1-1-clean": ("1-1 domains, clean", 18),
    }
