"""Descriptions that differ from the checkpoint's, around a graph that is right."""

from __future__ import annotations

from mutants.editing import interface, metadata
from mutants.kinds import FORMS, SEGMENTERS, mutant
from rcil.model.header import METADATA_KEY
from rcil_export.graph.interface import INTERFACE_KEY


def _field(kind, path, value, unseen=()):
    """A mutant that gives one field of the metadata another value."""
    name, *rest = path

    def change(document):
        def put(fields):
            target = fields
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = value(target[path[-1]]) if callable(value) else value

        metadata(document, put)
        return f"{METADATA_KEY}.{name}" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in rest)

    change.__name__ = "described_" + "_".join(str(key) for key in path if not isinstance(key, int))
    return mutant("description", kind, unseen=unseen)(change)


_field("the colour of a class", ("classes", 1, "colour"), [1, 2, 3])
_field("the id of a class", ("classes", 1, "id"), 77)
_field("the name of a class", ("classes", 1, "name"), "other")
_field("the step that brought a class", ("classes", 2, "step"), lambda step: 1 - step)
_field("the step of the model", ("step",), 2)
_field("the hash of the checkpoint in the lineage", ("lineage", 0, "parent_sha256"), "0" * 64)
_field("the source in the lineage", ("lineage", 0, "source"), "train")
_field("the mean", ("mean", 0), 0.5)
_field("the standard deviation", ("std", 2), 0.25)
_field("the order of colours", ("colour_order",), "BGR")
_field("the slope of the architecture", ("architecture", "slope"), 0.02)
_field("the method", ("method",), "unknown")
_field("a mark as rejected", ("rejected",), "forgot too much")


@mutant("description", "two names of classes swapped")
def names_swapped(document):
    def swap(fields):
        first, second = fields["classes"][0], fields["classes"][1]
        first["name"], second["name"] = second["name"], first["name"]

    metadata(document, swap)
    return f"{METADATA_KEY}.classes[0].name"


@mutant("description", "an entry of the lineage left out", unseen=FORMS)
def lineage_gone(document):
    metadata(document, lambda fields: fields.update(lineage=[]))
    return f"{METADATA_KEY}.lineage"


@mutant("description", "the input called float")
def input_kind(document):
    interface(document, lambda fields: fields.update(input="float"))
    return "input image"


@mutant("description", "the runtime that the graph is for", SEGMENTERS, seen_as="stands between")
def runtime(document):
    interface(document, lambda fields: fields.update(runtime="tensorrt" if fields["runtime"] == "cpu" else "cpu"))
    return "logits"


@mutant("description", "an output that the graph does not have", SEGMENTERS)
def outputs(document):
    interface(document, lambda fields: fields.update(outputs=["mask", "confidence", "logits"]))
    return "output logits"


@mutant("description", "the opset that the file claims")
def claimed_opset(document):
    interface(document, lambda fields: fields.update(opset=fields["opset"] + 1))
    return "opset"


@mutant("description", "the size that the file claims", tuple(form for form in SEGMENTERS if form != "dynamic"))
def size(document):
    interface(document, lambda fields: fields["shape"].update(height={"low": 32, "usual": 32, "high": 32}))
    return "input image"


@mutant("description", "no interface")
def no_interface(document):
    _remove(document, INTERFACE_KEY)
    return "model.onnx"


@mutant("description", "a description twice", seen_as="duplicate keys")
def doubled(document):
    entry = next(entry for entry in document.metadata_props if entry.key == METADATA_KEY)
    document.metadata_props.add(key=METADATA_KEY, value=entry.value)
    return f"metadata {METADATA_KEY}"


@mutant("description", "an entry that no export writes", unseen=FORMS)
def foreign_entry(document):
    document.metadata_props.add(key="payload", value="hello")
    return "payload"


def _remove(document, key):
    kept = [(entry.key, entry.value) for entry in document.metadata_props if entry.key != key]
    del document.metadata_props[:]
    for name, value in kept:
        document.metadata_props.add(key=name, value=value)
