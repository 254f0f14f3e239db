"""What our code asks of TensorRT's Python bindings, read off its source, and whether a set of bindings has it.

`python trt_contract.py MODULE` imports the bindings under that name and prints what is missing, as JSON.
"""

import ast
import importlib
import json
import re
import sys
from pathlib import Path

ENGINE = Path(__file__).parents[2] / "export" / "rcil_export" / "engine"
CLASSES = {
    "builder": "Builder",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "error": "ParserError",
    "config": "IBuilderConfig",
    "profile": "IOptimizationProfile",
    "timing_cache": "ITimingCache",
    "layer": "ILayer",
    "conv": "ILayer",
    "tensor": "ITensor",
    "image": "ITensor",
    "loaded": "ICudaEngine",
    "runtime_config": "IRuntimeConfig",
    "self._context": "IExecutionContext",
    "self._cache": "IRuntimeCache",
}
"""The names that objects of TensorRT have in our source."""
FILES = {
    "build.py": {"builder", "network", "config"},
    "caches.py": {"config", "timing_cache", "self._cache", "runtime_config"},
    "network.py": {"builder", "config", "network", "parser", "error", "profile", "image", "layer", "conv", "tensor"},
    "runner.py": {"loaded", "runtime_config"},
    "slot.py": {"self._context"},
}
RTX_ONLY = {"ComputeCapability", "CudaGraphStrategy", "IRuntimeCache"}
RTX_MEMBERS = {
    ("IBuilderConfig", "num_compute_capabilities"),
    ("IBuilderConfig", "set_compute_capability"),
    ("ICudaEngine", "create_runtime_config"),
    ("IRuntimeConfig", "create_runtime_cache"),
    ("IRuntimeConfig", "set_runtime_cache"),
    ("IRuntimeConfig", "cuda_graph_strategy"),
}
"""What our code asks of TensorRT-RTX alone, behind `flavour.name == "rtx"`."""


def text_of(node):
    """`a.b.c` of such an expression, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = text_of(node.value)
        return None if inner is None else f"{inner}.{node.attr}"
    return None


def needs():
    """(path in the module, number of arguments or None, their keywords) of everything that our source uses."""
    found = set()
    for path in sorted(ENGINE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute):
                continue
            text = text_of(node) or ""
            of_module = re.fullmatch(r"(?:flavour\.)?trt\.((?:\w+\.)*\w+)", text)
            owner = text.rpartition(".")[0]
            if of_module:
                target = of_module[1]
            elif owner in FILES.get(path.name, ()):
                target = f"{CLASSES[owner]}.{node.attr}"
            else:
                continue
            if target in ("__version__", "__dict__"):
                continue
            call = calls.get(id(node))
            starred = call is not None and any(isinstance(argument, ast.Starred) for argument in call.args)
            count = None if call is None or starred else len(call.args) + len(call.keywords)
            keywords = () if call is None else tuple(k.arg for k in call.keywords if k.arg)
            if target.endswith(".__init__") and count:
                count -= 1  # the object itself
            found.add((target, count, keywords))
        for node in ast.walk(tree):
            bases = [text_of(base) or "" for base in node.bases] if isinstance(node, ast.ClassDef) else []
            for base in (base.removeprefix("trt.") for base in bases if base.startswith("trt.")):
                methods = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
                assigned = [name.id for part in node.body if isinstance(part, ast.Assign) for name in part.targets]
                found |= {(f"{base}.{name}", None, ()) for name in methods + assigned}
    return sorted(found, key=str)


def problem(module, target, count, keywords, *, rtx):
    """What is wrong with one need, or None."""
    names = target.split(".")
    if not rtx and (names[0] in RTX_ONLY or tuple(names[:2]) in RTX_MEMBERS):
        return None
    value = module
    for name in names:
        if not hasattr(value, name):
            return f"{target} does not exist"
        value = getattr(value, name)
    if count is None or not callable(value) or isinstance(value, type):
        return None
    lines = (value.__doc__ or "").splitlines()
    signatures = [line for line in lines if re.match(rf"\s*(\d+\. )?{names[-1]}\(", line) and "*args" not in line]
    if not signatures:
        return None
    for signature in signatures:
        inside = re.sub(r"<[^<>]*>", "", signature[signature.index("(") + 1 : signature.rindex(")")])
        parameters = [p.strip() for p in re.split(r",(?![^\[\(]*[\]\)])", inside) if p.strip()]
        parameters = [p for p in parameters if not p.startswith("self:")]
        required = [p for p in parameters if "=" not in p]
        known = {p.split(":")[0].strip() for p in parameters}
        if len(required) <= count <= max(len(parameters), len(required)) and set(keywords) <= known:
            return None
    return f"{target} takes {signatures}, and is called with {count} arguments {list(keywords)}"


def main(name):
    module = importlib.import_module(name)
    rtx = hasattr(module, "ComputeCapability")
    asked = needs()
    problems = [text for need in asked if (text := problem(module, *need, rtx=rtx))]
    sys.stdout.write(json.dumps({"version": module.__version__, "asked": len(asked), "problems": problems}))


if __name__ == "__main__":
    main(sys.argv[1])
