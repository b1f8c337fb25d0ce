"""The SVG of a plan: well-formed, every kernel in it once, nothing on top of anything else, data flowing downward."""

from __future__ import annotations

from xml.etree import ElementTree

from autofuse.fusion.planner.baselines import none_plan
from autofuse.fusion.planner.planner import plan_from
from autofuse.graph.model import Graph
from autofuse.views.picture import picture

SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg: str) -> dict[str, tuple[float, float, float, float]]:
    """Corners of each box by its title."""
    found = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        frame, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title")
        assert frame is not None and title is not None and title.text
        x, y, width, height = (float(frame.attrib[key]) for key in ("x", "y", "width", "height"))
        found[title.text] = x, y, x + width, y + height
    return found


def test_every_kernel_input_and_output_has_a_box_of_its_own(network: Graph) -> None:
    for plan in (none_plan(network), plan_from(network, {})):
        placed = boxes(picture(network, plan))
        kernels = {"\n".join(group.operators) for group in plan.groups}
        ends = {f"input {name}" for name in network.inputs} | {f"output {name}" for name in network.outputs}
        assert set(placed) == kernels | ends
        corners = list(placed.values())
        for number, (left, top, right, bottom) in enumerate(corners):
            for other in corners[:number]:
                assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top, "boxes overlap"


def test_a_kernel_stands_below_what_it_reads(network: Graph) -> None:
    plan = none_plan(network)
    placed = boxes(picture(network, plan))
    for operator in network.operators:
        for producer in network.predecessors(operator):
            assert placed[producer.name][3] < placed[operator.name][1]


def test_the_picture_tells_shapes_folds_and_times_and_escapes_names(zoo: dict, builder: type) -> None:
    graph = zoo["conv_bn_relu"]()
    plan = plan_from(graph, {})
    svg = picture(graph, plan, {plan.groups[0].operators: "12.5 us"})
    assert "kernel 1: 12.5 us" in svg
    assert "Conv 1x16x32x32" in svg
    assert "+ BatchNormalization folded in" in svg
    b = builder('a <b> & "c"')
    graph = b.build(b.op("Relu", 'r<&>"', (b.input("x & y", 4),)))
    assert 'r<&>"' in boxes(picture(graph, none_plan(graph)))
    assert picture(graph, none_plan(graph)) == picture(graph, none_plan(graph))
