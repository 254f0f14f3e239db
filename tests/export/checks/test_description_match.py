import check_models as models
import pytest

from rcil.model.metadata import LineageEntry
from rcil_export.checks.description_match import description_result

TRAINED = LineageEntry(step=2, source="train", parent_sha256="a" * 64)
EXPORTED = LineageEntry(step=2, source="export", parent_sha256="b" * 64)
FOLDED = LineageEntry(step=2, source="fold", parent_sha256="c" * 64)


def reference():
    return models.metadata(models.model(), lineage=(TRAINED,))


def exported(**changes):
    metadata = reference()
    arch = metadata.architecture.replace(rc=None, folded=True, norm="batch")
    return metadata.model_copy(update={"architecture": arch, "lineage": (TRAINED, EXPORTED)} | changes)


def failed(described, hashes=("b" * 64,), against=None):
    result = description_result("model.onnx", described, "step2", against or reference(), hashes)
    return {item.key: item.measured for item in result.items if item.passed is False}


def with_class(row, **changes):
    classes = list(reference().classes)
    classes[row] = classes[row].model_copy(update=changes)
    return exported(classes=tuple(classes))


def test_an_export_says_what_its_checkpoint_says():
    assert failed(exported()) == {}
    assert failed(reference(), ()) == {}


@pytest.mark.parametrize(
    ("row", "changes", "text"),
    [
        (3, {"colour": (1, 2, 3)}, "classes[3].colour of "),
        (2, {"id": 77}, "classes[2].id of "),
        (1, {"name": "other"}, "classes[1].name is 'other', not '"),
        (4, {"step": 1}, "classes[4].step of "),
    ],
)
def test_every_field_of_the_class_table_counts(row, changes, text):
    assert failed(with_class(row, **changes))["class_table"].startswith(text)


def test_rows_swapped_with_their_names_are_named():
    classes = list(reference().classes)
    classes[1], classes[2] = classes[2], classes[1]
    name = classes[1].name
    found = failed(exported(classes=tuple(classes)))["class_table"]
    assert f"the row order differs: classes[1].name is '{name}'" in found


def test_swapped_colours_name_both_rows():
    classes = list(reference().classes)
    first, second = classes[1].colour, classes[2].colour
    classes[1], classes[2] = (
        classes[1].model_copy(update={"colour": second}),
        classes[2].model_copy(update={"colour": first}),
    )
    found = failed(exported(classes=tuple(classes)))["class_table"]
    assert "classes[1].colour" in found and "classes[2].colour" in found


def test_a_missing_and_a_further_class_are_named():
    classes = reference().classes
    assert f"classes[{len(classes) - 1}].name is absent" in failed(exported(classes=classes[:-1]))["class_table"]
    more = classes[-1].model_copy(update={"name": "more", "id": 99})
    assert f"classes[{len(classes)}] is 'more'" in failed(exported(classes=(*classes, more)))["class_table"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("mean", (0.0, 0.0, 0.0)), ("std", (1.0, 1.0, 1.0)), ("colour_order", "BGR"), ("method", "x"), ("rejected", "x")],
)
def test_other_fields_are_named(field, value):
    assert failed(exported(**{field: value}))["description"].startswith(f"{field} is ")


def test_a_field_of_the_architecture_is_named():
    arch = exported().architecture.replace(output_stride=8)
    assert failed(exported(architecture=arch))["description"] == "architecture.output_stride is 8, not 16"


def test_the_lineage_counts_but_not_its_forms():
    assert "lineage" not in failed(exported(lineage=(TRAINED, FOLDED, EXPORTED)), ("c" * 64,))
    folded = reference().model_copy(update={"lineage": (TRAINED, FOLDED)})
    exported_from_the_same = exported(lineage=(TRAINED, EXPORTED.model_copy(update={"parent_sha256": "c" * 64})))
    assert failed(exported_from_the_same, ("d" * 64,), folded) == {}
    other = TRAINED.model_copy(update={"seed": 3})
    assert failed(exported(lineage=(other, EXPORTED)))["lineage"] == "lineage[0].seed is 3, not None"
    assert "lineage[0].step is absent" in failed(exported(lineage=(EXPORTED,)))["lineage"]
    assert "lineage[1].parent_sha256 is bbbb" in failed(exported(), ("e" * 64,))["lineage"]


def test_another_step_may_differ_in_what_a_step_changes():
    later = exported(step=3, lineage=(TRAINED, EXPORTED, EXPORTED), method="other")
    result = description_result("new", later, "old", reference())
    assert result.ok and result.items[-1].passed is None and not result.items[-1].not_checked
    recoloured = with_class(1, colour=(9, 9, 9)).model_copy(update={"step": 3})
    assert "classes[1].colour" in failed(recoloured)["class_table"]


def test_what_was_made_from_the_reference_is_of_its_step():
    assert failed(exported(step=3))["description"] == "step is 3, not 2"
    assert "description" not in failed(exported(step=3), ("e" * 64,))
