import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from m3g.nets import MLP, MultiViewNet, Projector, Teacher, build_net


@settings(deadline=None, max_examples=15)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4), n=st.integers(1, 6), predictor=st.booleans())
def test_shapes(sizes, n, predictor):
    net = build_net(
        [(size,) for size in sizes],
        encoder={"kind": "mlp", "width": 8},
        projector={"hidden": 8, "out_features": 5},
        predictor={} if predictor else None,
    )
    views = [torch.randn(n, size) for size in sizes]
    out = net(views)
    assert out.shape == (len(sizes), n, 5)
    assert [part.shape for part in net.features(views)] == [(n, 8)] * len(sizes)
    one_by_one = torch.stack([net.embed_view(view, l) for l, view in enumerate(views)])
    torch.testing.assert_close(one_by_one, out)


def test_one_shared_encoder_serves_all_views():
    net = build_net([(4,)] * 3, shared=True)
    view = torch.randn(6, 4)
    out = net([view, view, view])
    assert torch.equal(out[0], out[1])
    assert torch.equal(out[0], out[2])
    assert len(net.encoders) == len(net.projectors) == 1


def test_wrong_numbers_of_parts_are_refused():
    with pytest.raises(ValueError, match="one per encoder"):
        MultiViewNet([MLP(3), MLP(3)], [Projector(256)] * 3)
    with pytest.raises(ValueError, match="views must be 2 tensors"):
        MultiViewNet([MLP(3), MLP(3)], Projector(256))([torch.randn(2, 3)] * 3)
    with pytest.raises(ValueError, match="at least one module"):
        MultiViewNet([], Projector(256))


def test_teacher_is_the_average_of_the_student_without_predictor():
    student = build_net([(3,), (4,)], encoder={"kind": "mlp", "width": 8}, predictor={})
    teacher = Teacher(student)
    assert teacher.net.predictor is None
    assert student.predictor is not None
    assert not any(part.requires_grad for part in teacher.parameters())
    before = [part.clone() for part in teacher.parameters()]
    with torch.no_grad():
        for part in student.parameters():
            part.normal_()
    teacher.update(student, 0.9)
    students = [*student.encoders.parameters(), *student.projectors.parameters()]
    for old, new, other in zip(before, teacher.parameters(), students, strict=True):
        torch.testing.assert_close(new, 0.9 * old + 0.1 * other)
    teacher.update(student, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(teacher.parameters(), students, strict=True))


def test_teacher_gives_targets_without_gradient_or_dropout():
    student = MultiViewNet(MLP(3, dropout=0.5), Projector(256))
    teacher = Teacher(student)
    holder = nn.ModuleList([student, teacher]).train()
    assert student.training
    assert not any(part.training for part in holder[1].modules())
    views = [torch.randn(4, 3)] * 2
    out = teacher(views)
    assert not out.requires_grad
    assert torch.equal(out, teacher(views))
    assert torch.equal(teacher.embed_view(views[1], 1), out[1])


def test_teacher_takes_over_running_statistics():
    student = MultiViewNet(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), Projector(4))
    teacher = Teacher(student)
    student([torch.randn(8, 3) + 5] * 2)
    teacher.update(student, 0.99)
    assert torch.equal(teacher.net.encoders[0][1].running_mean, student.encoders[0][1].running_mean)


def test_a_momentum_out_of_range_is_refused():
    with pytest.raises(ValueError, match="momentum must be"):
        Teacher(MultiViewNet(MLP(2), Projector(256))).update(MultiViewNet(MLP(2), Projector(256)), 2.0)
