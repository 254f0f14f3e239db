from sites import make_site

from rcil.data.digest import data_digest
from rcil.data.site import read_site


def test_order_does_not_matter_and_content_does(tmp_path):
    samples = read_site(make_site(tmp_path / "site")).splits["train"]
    before = data_digest(samples)
    assert before == data_digest(reversed(samples))
    assert before != data_digest(samples[1:])
    samples[0].mask.write_bytes(samples[0].mask.read_bytes() + b"x")
    assert before != data_digest(samples)
