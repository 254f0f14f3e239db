"""Every method on a small network: the terms are the formulas, the start is its rule, the state survives."""

import pytest
import torch
from networks import at_step, small_arch
from torch.nn import functional as F

from rcil import losses
from rcil.core.errors import ConfigError, TrainingError
from rcil.methods import METHODS, StepInfo, make_method
from rcil.model.architecture import RC
from rcil.nn import RCConv, build, fold
from rcil.nn.units.rc import DropPathMix, FixedMix, LearnableMix

INFO = StepInfo(old=3, new=1)


@pytest.fixture(scope="module")
def batch():
    """Teacher, images and labels: background, the new row 3 and ignored pixels."""
    teacher = at_step(small_arch(), 0)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2, 3, 65, 65, generator=generator)
    labels = torch.randint(0, 10, (2, 65, 65), generator=generator)
    labels = torch.tensor([0, 0, 0, 0, 0, 0, 0, 3, 3, 255])[labels]
    return teacher, images, labels


def start(name, batch, **options):
    """Method, student maps, teacher maps at the start of step 1."""
    teacher, images, labels = batch
    torch.manual_seed(2)
    method = make_method(name, **options)
    student = method.begin(teacher, ["new"]).eval()
    with torch.no_grad():
        old = fold(teacher)[0](images, maps=method.maps)
    new = student(images, maps=method.maps)
    method.prepare([(old, labels)], INFO, student)
    return method, student, new, old


def ce(logits, labels):
    return F.cross_entropy(logits, labels, ignore_index=255, reduction="none").mean()


EXPECTED = {
    "fine-tuning": lambda n, o, y: {"ce": ce(n.logits, y)},
    "joint": lambda n, o, y: {"ce": ce(n.logits, y)},
    "lwf": lambda n, o, y: {"ce": ce(n.logits, y), "kd": 100 * losses.knowledge_distillation(n.logits, o.logits)},
    "ilt": lambda n, o, y: {
        "ce": ce(n.logits, y),
        "kd": 100 * losses.knowledge_distillation(n.logits, o.logits),
        "encoder": 100 * F.mse_loss(n.encoder, o.encoder),
    },
    "mib": lambda n, o, y: {
        "unce": losses.unbiased_cross_entropy(n.logits, y, 3),
        "unkd": 10 * losses.unbiased_distillation(n.logits, o.logits),
    },
    "rcil": lambda n, o, y: {
        "unce": losses.unbiased_cross_entropy(n.logits, y, 3),
        "unkd": 200 * losses.unbiased_distillation(n.logits, o.logits),  # sqrt(4 / 1)
        "pcd": losses.pcd_paper([*n.stages, n.decoder], [*o.stages, o.decoder]),
    },
    "rcil-official": lambda n, o, y: {
        "unce": losses.unbiased_cross_entropy(n.logits, y, 3),
        "unkd": 100 * losses.unbiased_distillation(n.logits, o.logits),
        "pcd": sum(losses.pcd_official(n.distilled(), o.distilled(), classes=4, new_classes=1)),
    },
}


@pytest.mark.parametrize("name", EXPECTED)
def test_terms_are_the_formula(name, batch):
    method, _, new, old = start(name, batch)
    terms = method.terms(new, old if method.needs_teacher else None, batch[2], INFO)
    expected = EXPECTED[name](new, old, batch[2])
    torch.testing.assert_close(terms.total, sum(expected.values()))
    for key in terms.keys() & expected.keys():
        torch.testing.assert_close(terms[key], expected[key])


def test_lwf_mc_is_the_combined_loss(batch):
    method, _, new, old = start("lwf-mc", batch)
    labels = losses.binary_cross_entropy(new.logits, batch[2])
    expected = labels + 10 * losses.sigmoid_distillation(new.logits, old.logits)
    torch.testing.assert_close(method.terms(new, old, batch[2], INFO).total, expected)


def test_plop_completes_labels_and_scales_by_certainty(batch):
    method, _, new, old = start("plop", batch)
    terms = method.terms(new, old, batch[2], INFO)
    histogram = losses.EntropyHistogram(4)
    histogram.update(old.logits, batch[2])
    labels, factor = losses.pseudo_labels(old.logits, batch[2], histogram.thresholds())
    assert (labels != batch[2]).any(), "something was completed"
    per_image = F.cross_entropy(new.logits, labels, ignore_index=255, reduction="none").mean((1, 2))
    torch.testing.assert_close(terms["ce"], (per_image * factor).mean())


@pytest.mark.parametrize("kind", ["local", "none", "global", "max", "average"])
def test_plop_compares_maps(batch, kind):
    """Factors: 0.01 of five maps and 5e-4 of the logits, times sqrt(4 / 1), over six maps."""
    method, _, new, old = start("plop", batch, pooling=kind)
    each = [losses.pcd_maps([a], [b], kind=kind) for a, b in zip(new.distilled(), old.distilled(), strict=True)]
    expected = 2 * (0.01 * sum(each[:5]) + 5e-4 * each[5]) / 6
    torch.testing.assert_close(method.terms(new, old, batch[2], INFO)["pod"], expected)


def test_fine_tuning_of_a_network_with_branches(batch):
    """unbiased: false without PCD has the loss and the random new rows of fine-tuning."""
    options = {"unbiased": False, "spatial": False, "channel": False, "mix": "fixed", "old_weight": 0.75}
    method, student, new, old = start("rcil", batch, **options)
    terms = method.terms(new, old, batch[2], INFO)
    assert set(terms) == {"ce"}
    torch.testing.assert_close(terms["ce"], ce(new.logits, batch[2]))
    weight, bias = student.classifier.rows()
    assert not torch.equal(weight[3], weight[0])
    assert torch.equal(bias[:3], batch[0].classifier.rows()[1])
    assert {block.mix.old_weight for block in branches(student)} == {0.75}


def test_plop_without_prepare_is_an_error(batch):
    teacher, images, labels = batch
    method = make_method("plop")
    maps = method.begin(teacher, ["new"]).eval()(images, maps="before")
    with pytest.raises(RuntimeError, match="prepare"):
        method.terms(maps, teacher(images, maps="before"), labels, INFO)


def test_sdr_collects_prototypes_of_the_encoder_in_step_0_and_adds_no_term(batch):
    teacher, images, labels = batch
    method, labels = make_method("sdr"), labels.where(labels != 3, 1)
    maps = teacher(images, maps="before")
    assert set(method.terms(maps, None, labels, StepInfo(0, 3))) == {"ce"}
    means, counts = losses.class_means(maps.encoder, losses.resize_labels(labels, maps.encoder.shape[2:]), 3)
    state = method.state_dict()
    torch.testing.assert_close(state["prototypes"], means.detach())
    assert torch.equal(state["seen"], counts)


def test_sdr_as_published(batch):
    """Background has no prototype; the new class has that of this batch already; old classes keep theirs."""
    teacher, images, labels = batch
    method = make_method("sdr")
    stored = torch.randn(3, teacher.backbone.stage_channels[-1], generator=torch.Generator().manual_seed(5))
    method.load_state_dict({"prototypes": stored, "seen": torch.tensor([7, 8, 9])})
    new, old = (m.eval()(images, maps="before") for m in (method.begin(teacher, ["new"]), teacher))
    old.logits[:, 0], old.logits[:, 1], old.logits[:, 2] = 1.0, 0.0, 0.0
    old.logits[:, 1, :, 30:] = 2.0  # the old model finds class 1 on the right, background on the left, class 2 nowhere
    terms = method.terms(new, old, labels, INFO)

    f, size = new.encoder, new.encoder.shape[2:]
    ids = losses.resize_labels(labels, size)
    pixels = {row: f.permute(0, 2, 3, 1)[ids == row] for row in (0, 3)}
    found = (labels == 0) & (old.logits.argmax(1) == 1)
    mean_1 = f.permute(0, 2, 3, 1)[losses.resize_labels(found.long(), size) == 1].mean(0)
    mean_0, mean_3 = pixels[0].mean(0), pixels[3].mean(0)
    torch.testing.assert_close(terms["matching"], 1e-2 * (mean_1 - stored[1]).square().mean())
    torch.testing.assert_close(terms["attraction"], 1e-3 * (pixels[3] - mean_3.detach()).square().mean())
    torch.testing.assert_close(terms["repulsion"], 1e-3 / (mean_0 - mean_3).norm())
    torch.testing.assert_close(terms["sparsity"], 1e-3 * losses.sparsity(f, ids, 4))
    state = method.state_dict()
    assert torch.equal(state["prototypes"][:3], stored)
    assert state["seen"].tolist() == [7, 8, 9, len(pixels[3])]


def test_prototypes_of_another_width_are_refused(batch):
    teacher, images, labels = batch
    method = make_method("sdr")
    method.load_state_dict({"prototypes": torch.zeros(3, 5), "seen": torch.zeros(3, dtype=torch.long)})
    with pytest.raises(TrainingError, match="have 5 channels"):
        method.terms(teacher(images, maps="before"), None, labels.clamp(max=2), StepInfo(0, 3))


def test_sdr_takes_the_labels_of_a_domain_step_as_they_are(batch):
    """There row 0 is a class like any other; the old model renames none of its pixels."""
    teacher, images, labels = batch
    method, labels = make_method("sdr"), labels.where(labels != 3, 2)
    maps = teacher(images, maps="before")
    terms = method.terms(maps, maps, labels, StepInfo(old=3, new=0))
    ids = losses.resize_labels(labels, maps.encoder.shape[2:])
    assert method.state_dict()["seen"].tolist() == [(ids == row).sum().item() for row in range(3)]
    assert terms["matching"] == 0, "the prototypes are those of this batch, row 0 among them"
    by_row = [(f - f.mean(0)).square().mean() for f in (maps.encoder.permute(0, 2, 3, 1)[ids == r] for r in (0, 2))]
    torch.testing.assert_close(terms["attraction"], 1e-3 * sum(by_row) / 2)


@pytest.mark.parametrize("name", METHODS)
def test_step_0_needs_no_teacher_and_everything_takes_gradient(name, batch):
    teacher, images, labels = batch
    method = make_method(name)
    terms = method.terms(teacher.train()(images, maps=method.maps), None, labels.clamp(max=2), StepInfo(0, 3))
    teacher.zero_grad()
    terms.total.backward()
    assert all(torch.isfinite(p.grad).all() for p in teacher.parameters() if p.grad is not None)
    assert teacher.classifier.groups[0].weight.grad.abs().sum() > 0
    teacher.eval()


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not method.keeps_old])
def test_a_domain_step_has_no_new_class(name, batch):
    teacher, images, labels = batch
    method, info = make_method(name), StepInfo(old=3, new=0)
    student = method.begin(teacher, []).eval()
    old = teacher(images, maps=method.maps) if method.needs_teacher else None
    terms = method.terms(student(images, maps=method.maps), old, labels.where(labels != 3, 2), info)
    assert torch.isfinite(terms.total)
    assert not {"unce", "unkd"} & set(terms)


@pytest.mark.parametrize(("name", "rows"), [("mib", "balanced"), ("rcil-official", "background"), ("plop", "balanced")])
def test_the_start_rule(name, rows, batch):
    _, student, _, _ = start(name, batch)
    weight, bias = student.classifier.rows()
    assert torch.equal(weight[3], weight[0])
    assert torch.equal(bias[3], bias[0])
    lowered = bias[0] < batch[0].classifier.rows()[1][0]
    assert lowered == (rows == "balanced")


@pytest.mark.parametrize(
    ("options", "merged", "frozen"),
    [({}, True, True), ({"merge": False}, False, True), ({"freeze": False}, True, False)],
)
def test_rcil_ablations_of_the_transition(batch, options, merged, frozen):
    _, student, _, _ = start("rcil", batch, **options)
    blocks = [m for m in student.modules() if isinstance(m, RCConv)]
    assert all(isinstance(b.old, torch.nn.Conv2d) == merged for b in blocks)
    assert all(b.frozen == frozen for b in blocks)


@pytest.mark.parametrize(
    "options",
    [{"mix": "fixed", "old_weight": 0.8}, {"mix": "learnable"}, {"drop": 0.1}, {"mix": "fixed", "preserve": True}],
)
def test_options_of_the_mix_reach_a_network_that_comes_with_branches(options):
    """The merged past is that of the old mix; what is learned from here on is mixed as asked."""
    model = at_step(small_arch(rc={"drop": 0.33}), 1)
    student = make_method("rcil", **options).begin(model, ["new"])
    for block, before in zip(branches(student), branches(model), strict=True):
        assert torch.equal(block.old.weight, before.merged().weight)
        assert block.mix.training == block.training == model.training
    asked = {"drop": 0.33, **{key: value for key, value in options.items() if key != "preserve"}}
    assert student.arch.rc.model_dump(include=set(asked)) == asked
    for name, value in asked.items():
        assert {getattr(b.mix, name, value) for b in branches(student) if name != "mix"} <= {value}
    kind = {"fixed": FixedMix, "learnable": LearnableMix}.get(options.get("mix"), DropPathMix)
    assert {type(block.mix) for block in branches(student)} == {kind}
    rebuilt = build(student.arch, student.classifier.steps)
    rebuilt.load_state_dict(student.state_dict())
    image = torch.randn(1, 3, 33, 33)
    assert torch.equal(rebuilt.eval()(image), student.eval()(image))


def test_without_options_a_network_keeps_its_mix():
    model = at_step(small_arch(rc={"mix": "fixed", "old_weight": 0.25}), 1)
    for name in ("rcil", "rcil-plus"):
        student = make_method(name).begin(model, ["new"])
        assert student.arch.rc == model.arch.rc
        assert {block.mix.old_weight for block in branches(student)} == {0.25}


@pytest.mark.parametrize(
    ("options", "rc"),
    [
        ({"norms": "none"}, {"new": "merged"}),
        ({"norms": "none", "merge": False}, {"new": "merged", "old": "norm"}),
        ({"norms": "after"}, {"norm_after": True}),
        ({"norms": "after", "preserve": True}, {"norm_after": True, "new": "merged"}),
        ({"stages": ["head", "stage3"]}, {"stages": ("stage3", "head")}),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["rcil", "rcil-plus"])
def test_forms_of_the_branches_that_are_added_late(name, options, rc):
    """The deployed network's function stays, and the description says what is there."""
    plain, x = at_step(small_arch(rc=None), 0).double(), torch.randn(1, 3, 33, 33, dtype=torch.float64)
    student = make_method(name, late=True, **options).begin(plain, ["cone"])
    assert student.arch.rc == RC(**{"old": "merged", "frozen": True, **rc})
    expected = plain(x)[:, 1:]
    assert (student.eval()(x)[:, 1:3] - expected).abs().max() < 1e-10 * expected.abs().max()
    bare = options.get("norms") is not None
    assert all(isinstance(block.new, torch.nn.Conv2d) == bare for block in branches(student))
    assert all((block.norm is not None) == (options.get("norms") == "after") for block in branches(student))
    again = make_method(name, late=True, **options).begin(student, ["pole"])
    assert again.arch.rc == student.arch.rc


def test_branches_lose_their_norms_in_the_first_later_step():
    method = make_method("rcil", norms="none")
    assert method.rc == RC(), "step 0 is that of other methods with branches"
    model = at_step(small_arch(), 0)
    student = method.begin(model, ["new"])
    for block, before in zip(branches(student), branches(model), strict=True):
        of_zeros = before.new.norm(torch.zeros(1, len(block.new.bias), 1, 1))
        torch.testing.assert_close(block.new.bias, of_zeros.flatten())


@pytest.mark.parametrize(
    ("stored", "options", "message"),
    [
        ({}, {"norms": "after"}, "norms: after needs branches without norms"),
        ({"norm_after": True}, {"norms": "none"}, "norms: none needs norms in the branches"),
        ({}, {"stages": ["head"]}, "asked for in head, but .* in stage1, stage2, stage3, stage4, head"),
        ({"stages": ("head",)}, {"stages": ["stage4", "head"]}, "asked for in stage4, head, but .* in head"),
    ],
)
def test_branches_that_are_there_keep_their_form(stored, options, message):
    model = at_step(small_arch(rc=stored), 0)
    with pytest.raises(ConfigError, match=message):
        make_method("rcil", **options).begin(model, ["new"])
    assert make_method("rcil").begin(model, ["new"]).arch.rc == RC(**stored, old="merged", frozen=True)


def test_branches_that_are_there_cannot_be_left_out(batch):
    with pytest.raises(ConfigError, match="parallel: false needs a network without branches"):
        make_method("rcil", parallel=False).begin(batch[0], ["new"])


def branches(model):
    return [module for module in model.modules() if isinstance(module, RCConv)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windows": [0]}, "windows.0: .* greater than or equal to 1"),
        ({"windows": []}, "windows: .* at least 1 item"),
        ({"distilled": []}, "distilled: .* at least 1 item"),
        ({"pooling": "channel"}, "pooling: .* 'average', 'none', 'global', 'max' or 'strip'"),
    ],
)
@pytest.mark.parametrize("name", ["rcil", "rcil-plus"])
def test_bad_options_of_the_distillation_are_found_at_once(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make_method(name, **options)


def test_rcil_ablations_of_the_distillation(batch):
    _, _, new, old = start("rcil", batch)
    pcd = {
        name: make_method("rcil", **options).terms(new, old, batch[2], INFO)
        for name, options in {
            "none": {"spatial": False, "channel": False},
            "spatial": {"channel": False},
            "strip": {"channel": False, "pooling": "strip"},
            "decoder": {"channel": False, "distilled": ["decoder"]},
            "logits": {"channel": False, "distilled": ["decoder", "logits"]},
            "small": {"channel": False, "windows": [2]},
        }.items()
    }
    assert not [key for key in pcd["none"] if key.startswith("pcd")]
    values = [pcd[name]["pcd_spatial"].item() for name in ("spatial", "strip", "decoder", "logits", "small")]
    assert len(set(values)) == 5
    torch.testing.assert_close(
        pcd["decoder"]["pcd_spatial"], 0.01 * losses.spatial_distance(new.decoder, old.decoder, padding="valid")
    )


@pytest.mark.parametrize("name", ["plop", "sdr"])
def test_state_survives_an_interruption(name, batch, tmp_path):
    method, _, new, old = start(name, batch)
    method.terms(new, old, batch[2], INFO)
    torch.save(method.state_dict(), tmp_path / "state.pt")
    again = make_method(name)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    a, b = method.terms(new, old, batch[2], INFO), again.terms(new, old, batch[2], INFO)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_method("rcli"), "Did you mean 'rcil'"),
        (lambda: make_method("rcil", gama=1), "Did you mean 'gamma'"),
        (lambda: make_method("fine-tuning", weight=1), "This method has no options"),
        (lambda: make_method("rcil-official", benchmark="vok"), "Did you mean 'voc'"),
    ],
)
def test_typos_get_a_suggestion(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distilled": ["decodr"]}, r"option distilled\.0: .*'decoder'"),
        ({"mix": "drop"}, r"option mix: .*'drop_path'"),
        ({"drop": 0.7}, "option drop: .*0.5"),
        ({"norms": "before"}, "option norms: .*'branch', 'none' or 'after'"),
        ({"stages": ["decoder"]}, r"option stages\.0: .*'head'"),
        ({"stages": []}, "option stages: .*at least 1"),
        ({"gamma": "much"}, "option gamma: .*number"),
    ],
)
def test_impossible_values_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        make_method("rcil", **options)


def test_branches_come_at_the_start_late_or_never():
    assert make_method("rcil", mix="fixed", old_weight=0.9).rc == RC(mix="fixed", old_weight=0.9)
    plain = at_step(small_arch(rc=None), 0)
    late = make_method("rcil", late=True, mix="learnable")
    assert late.rc is None
    student = late.begin(plain, ["cone"])
    assert student.arch.rc is not None
    assert (student.arch.rc.mix, student.arch.rc.old, student.arch.rc.frozen) == ("learnable", "merged", True)
    x = torch.randn(1, 3, 33, 33)
    assert torch.allclose(student.eval()(x)[:, 1 : len(plain.names)], plain.eval()(x)[:, 1:], atol=1e-4)
    never = make_method("rcil", parallel=False)
    assert never.rc is None
    assert never.begin(plain, ["cone"]).arch.rc is None


def test_an_option_called_name_is_refused_with_words():
    with pytest.raises(ConfigError, match="name"):
        make_method("rcil", **{"name": "mib"})


@pytest.mark.parametrize("name", ["mib", "sdr", "plop", "rcil", "rcil-official", "rcil-plus"])
def test_labels_of_a_memory_teach_the_class_that_they_name(name, batch):
    """The gradient of the logits, summed over the pixels of such a label, raises its class and lowers all others."""
    info = StepInfo(old=3, new=1, memory=True)
    method, _, new, old = start(name, batch)
    remembered = torch.full_like(batch[2], 255)
    remembered[:, 20:40, 20:40] = 2
    new.logits.retain_grad()
    terms = method.terms(new, old, remembered, info)
    terms.get("unce", terms.get("ce")).backward()
    pull = new.logits.grad[:, :, 20:40, 20:40].sum(dim=(0, 2, 3))
    assert pull[2] < 0 and (pull[[0, 1, 3]] > 0).all()


@pytest.mark.parametrize("name", ["mib", "plop", "rcil"])
def test_a_memory_changes_nothing_for_the_images_of_the_step(name, batch):
    method, _, new, old = start(name, batch)
    labels = batch[2]
    without, with_memory = (method.terms(new, old, labels, StepInfo(3, 1, memory=m)) for m in (False, True))
    assert without.keys() == with_memory.keys()
    for term in without:
        torch.testing.assert_close(without[term], with_memory[term])
