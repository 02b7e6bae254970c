"""The teacher: an average of the student, without its predictor."""

import pytest
import torch
from torch import nn

from m3g.nets import MLP, MultiViewNet, Projector, Teacher, build_net


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


def test_teacher_copies_running_statistics():
    student = MultiViewNet(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), Projector(4))
    teacher = Teacher(student)
    student([torch.randn(8, 3) + 5] * 2)
    teacher.update(student, 0.99)
    assert torch.equal(teacher.net.encoders[0][1].running_mean, student.encoders[0][1].running_mean)


def test_a_momentum_out_of_range_is_an_error():
    with pytest.raises(ValueError, match="momentum must be"):
        Teacher(MultiViewNet(MLP(2), Projector(256))).update(MultiViewNet(MLP(2), Projector(256)), 2.0)
